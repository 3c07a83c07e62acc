//! What is exported and imported is what `apply` would have made.

use serde_json::Value;

use crate::{
    support::{broker::import, cli::Bench},
    topology::TOPOLOGY,
};

const IN_SYNC: &str = "No changes. The broker is as topology.yaml says.\n";

#[test]
fn an_import_into_an_empty_virtual_host_is_an_apply() {
    let bench = Bench::new(TOPOLOGY);
    // The virtual host is that of AMQP_URL.
    let definitions = bench.expect(0, &["export"]).json();
    assert_eq!(import(&definitions), 204);
    assert_eq!(bench.expect(0, &["plan", "--detailed-exitcode"]).stdout, IN_SYNC);
}

#[test]
fn without_a_virtual_host_it_is_imported_into_the_one_of_the_address() {
    let bench = Bench::new(TOPOLOGY);
    let definitions = bench.expect(0, &["export", "--no-vhost", "-o", "ndjson"]).json();
    assert_eq!(bench.host.import(&definitions), 204);
    assert_eq!(bench.expect(0, &["plan", "--detailed-exitcode"]).stdout, IN_SYNC);
}

#[test]
fn another_virtual_host_may_be_named() {
    let bench = Bench::new(TOPOLOGY);
    let definitions = bench.expect(0, &["export", "--vhost", "prod"]).json();
    let lists = definitions.as_object().expect("a map").values();
    let objects: Vec<&Value> = lists.flat_map(|list| list.as_array().expect("a list")).collect();
    assert!(objects.len() > 31, "{objects:?}");
    assert!(objects.iter().all(|object| object["vhost"] == "prod"), "{objects:?}");
    let ran = bench.expect(2, &["export", "--vhost", "prod", "--no-vhost"]);
    assert!(ran.stderr.contains("cannot be used with"), "{ran:?}");
}

/// Why `apply` is the way for changes.
#[test]
fn an_import_changes_no_existing_queue() {
    let bench = Bench::new(TOPOLOGY);
    let name = "billing.hatchery.1h";
    bench.host.put("queues", name, &serde_json::json!({ "durable": true, "arguments": { "x-queue-type": "quorum" } }));
    let definitions = bench.expect(0, &["export"]).json();
    assert_eq!(import(&definitions), 204);
    let planned = bench.expect(4, &["plan", "--detailed-exitcode"]).stdout;
    assert!(planned.contains(&format!("! queue    {name}")), "{planned}");
}

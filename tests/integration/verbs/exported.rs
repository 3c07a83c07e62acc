//! `topology export`: importing the definitions has the same result as `apply`.

use serde_json::Value;

use crate::{
    support::{broker::import, cli::Bench},
    topology::TOPOLOGY,
};

const IN_SYNC: &str = "No changes. The broker is as topology.yaml says.\n";

#[test]
fn an_import_into_an_empty_virtual_host_equals_an_apply() {
    let bench = Bench::new(TOPOLOGY);
    // The exported virtual host is the one of `AMQP_URL`.
    let definitions = bench.expect(0, &["export"]).json();
    assert_eq!(import(&definitions), 204);
    assert_eq!(bench.expect(0, &["plan", "--detailed-exitcode"]).stdout, IN_SYNC);
}

#[test]
fn an_export_without_a_virtual_host_is_imported_into_any() {
    let bench = Bench::new(TOPOLOGY);
    let definitions = bench.expect(0, &["export", "--no-vhost", "-o", "ndjson"]).json();
    assert_eq!(bench.host.import(&definitions), 204);
    assert_eq!(bench.expect(0, &["plan", "--detailed-exitcode"]).stdout, IN_SYNC);
}

#[test]
fn an_export_may_name_another_virtual_host() {
    let bench = Bench::new(TOPOLOGY);
    let definitions = bench.expect(0, &["export", "--vhost", "prod"]).json();
    let lists = definitions.as_object().expect("a map").values();
    let objects: Vec<&Value> = lists.flat_map(|list| list.as_array().expect("a list")).collect();
    assert!(objects.len() > 31, "{objects:?}");
    assert!(objects.iter().all(|object| object["vhost"] == "prod"), "{objects:?}");
    let ran = bench.expect(2, &["export", "--vhost", "prod", "--no-vhost"]);
    assert!(ran.stderr.contains("cannot be used with"), "{ran:?}");
}

/// The reason why changes need `apply`.
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

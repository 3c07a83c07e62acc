//! Classic queues, by choice.

use serde_json::json;

use super::TOPOLOGY;
use crate::support::cli::Bench;

#[test]
fn validate_says_what_classic_queues_give_up() {
    let bench = Bench::new(&format!("{TOPOLOGY}queue-type: classic\n"));
    let ran = bench.expect(0, &["validate"]);
    assert!(ran.stdout.starts_with("topology.yaml is valid: "), "{ran:?}");
    for what in ["nothing is replicated", "at most once", "counts no crashes"] {
        assert_eq!(ran.stderr.matches(what).count(), 1, "{what}: {ran:?}");
    }
    assert!(ran.stderr.lines().all(|line| line.starts_with("warning: `queue-type: classic`: ")), "{ran:?}");
    let said = bench.expect(0, &["validate", "-o", "json"]);
    let valid = said.json();
    assert_eq!((&valid["valid"], &valid["queue_type"]), (&json!(true), &json!("classic")));
    let warnings: Vec<&str> =
        valid["warnings"].as_array().unwrap().iter().map(|warning| warning.as_str().unwrap()).collect();
    let lines: Vec<&str> = ran.stderr.lines().map(|line| line.trim_start_matches("warning: ")).collect();
    assert_eq!((warnings, said.stderr.as_str()), (lines, ""));

    bench.write(TOPOLOGY);
    assert_eq!(bench.expect(0, &["validate"]).stderr, "");
    assert_eq!(bench.expect(0, &["validate", "-o", "json"]).json()["warnings"], json!([]));
}

#[test]
fn a_classic_topology_is_in_sync_once_it_is_applied() {
    let bench = Bench::new(&format!("{TOPOLOGY}queue-type: classic\n"));
    bench.apply();
    bench.expect(0, &["plan", "--detailed-exitcode"]);
    // One type of queue never becomes the other under events.
    bench.write(TOPOLOGY);
    let planned = bench.expect(4, &["plan", "--detailed-exitcode"]).stdout;
    assert!(planned.contains("x-queue-type classic -> quorum"), "{planned}");
}

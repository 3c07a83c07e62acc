//! `adopt` makes queues without a label part of the topology.

use serde_json::json;

use super::TOPOLOGY;
use crate::support::{amqp::Amqp, broker::eventually, cli::Bench};

/// Declares a queue again as it was, with another owner label or none.
fn label(bench: &Bench, queue: &str, label: Option<&str>) {
    let live = bench.host.list("queues").into_iter().find(|live| live["name"] == queue).unwrap();
    let mut arguments = live["arguments"].clone();
    match label {
        Some(label) => arguments["x-hatchery-owner"] = json!(label),
        None => drop(arguments.as_object_mut().unwrap().remove("x-hatchery-owner")),
    }
    let keys: Vec<(String, String)> = bench
        .host
        .list("bindings")
        .iter()
        .filter(|live| live["destination"] == queue)
        .map(|live| (live["source"].as_str().unwrap().to_owned(), live["routing_key"].as_str().unwrap().to_owned()))
        .collect();
    bench.host.delete("queues", &[queue]);
    bench.host.put("queues", queue, &json!({ "durable": true, "arguments": arguments }));
    for (source, key) in keys {
        bench.host.bind(&source, queue, &key);
    }
}

#[test]
fn an_adopted_queue_with_the_right_arguments_is_in_sync() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    label(&bench, "billing.processor.mail", None);
    let planned = bench.expect(4, &["plan", "--detailed-exitcode"]).stdout;
    assert!(planned.contains("needs adopt: [billing.processor.mail]"), "{planned}");
    bench.write(&format!("{TOPOLOGY}adopt: [billing.processor.mail]\n"));
    bench.expect(0, &["plan", "--detailed-exitcode"]);
}

#[test]
fn a_queue_of_another_topology_cannot_be_adopted() {
    let bench = Bench::new(&format!("{TOPOLOGY}adopt: [billing.processor.mail]\n"));
    bench.apply();
    label(&bench, "billing.processor.mail", Some("other"));
    let planned = bench.expect(4, &["plan", "--detailed-exitcode"]).stdout;
    assert!(planned.contains("blocked: owned by other") && !planned.contains("needs adopt"), "{planned}");
    let ran = bench.expect(4, &["apply", "--auto-approve", "--migrate", "--prune"]);
    assert!(ran.stderr.contains("nothing was written"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prunes a queue, whose count of 0 has to last 12 s; scripts/test --all runs it"]
async fn an_adopted_leftover_is_pruned_once_it_is_empty() {
    let bench = Bench::new(&format!("{TOPOLOGY}adopt: [legacy.tmp]\n"));
    bench.apply();
    bench.host.put("queues", "legacy.tmp", &json!({ "durable": true }));
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    amqp.publish("", "legacy.tmp", lapin::BasicProperties::default(), b"1").await;
    let counted = async || {
        bench.host.list("queues").iter().any(|q| q["name"] == "legacy.tmp" && q["messages"] == 1).then_some(())
    };
    eventually("the message is counted", counted).await;
    let planned = bench.expect(0, &["plan", "--detailed-exitcode"]).stdout;
    assert!(planned.contains("- queue    legacy.tmp  leftover (1 ready)"), "{planned}");
    bench.expect(0, &["apply", "--auto-approve"]);
    let pruned = bench.expect(0, &["apply", "--auto-approve", "--prune"]);
    assert!(pruned.stderr.contains("Not removed") && pruned.stderr.contains("queue legacy.tmp"), "{pruned:?}");
    assert!(bench.host.names("queues").contains(&"legacy.tmp".to_owned()));
    amqp.take("legacy.tmp").await;
    bench.expect(0, &["apply", "--auto-approve", "--prune"]);
    assert!(!bench.host.names("queues").contains(&"legacy.tmp".to_owned()));
}

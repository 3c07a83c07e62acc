//! Every kind of change to a topology, while an old pod and a new one publish and work.

use serde_json::json;

use super::{
    Random, apply, budget,
    traffic::{Ledger, Pod},
};
use crate::support::{broker::eventually, cli::Bench, redis};

const OLD: &str = "\
version: 1
name: t
hatcheries: [200ms, 700ms]
ladder: { resolution: 50ms, horizon: 1500ms }
defaults: { retry: { delays: [100ms, 300ms] }, lease: 1s }
types: { mail: {}, import: {} }
";

/// Applies the old file and then the new one under traffic of both, prunes, and asserts that no event is lost.
async fn survives(name: &str, old: &str, new: &str, prepare: impl AsyncFnOnce(&Bench)) -> Bench {
    let prefix = format!("redis: {{ prefix: {} }}\n", redis::prefix());
    let [old, new] = [old, new].map(|text| format!("{text}{prefix}"));
    let mut random = Random::new(name);
    let bench = Bench::new(&old);
    bench.apply();
    prepare(&bench).await;
    let ledger = Ledger::default();
    let old_pod = Pod::start(&format!("{name}-old"), &bench, &old, &ledger).await;
    some_are_published(&ledger).await;
    let new_pod = Pod::start(&format!("{name}-new"), &bench, &new, &ledger).await;

    bench.write(&new);
    let mut killed = apply(&bench, &["apply", "--auto-approve", "--migrate"], &mut random, budget()).await;
    some_are_published(&ledger).await;
    // The old pod stops publishing, as at the end of a deployment.
    old_pod.silence();
    some_are_published(&ledger).await;
    old_pod.stop().await;
    // Pruning also moves the events that the old worker gave back last.
    let prune = ["apply", "--auto-approve", "--migrate", "--prune"];
    killed += apply(&bench, &prune, &mut random, budget().div_ceil(2)).await;
    some_are_published(&ledger).await;
    new_pod.silence();
    let resting =
        |queue: &str| ["dead-letter", "unrouted", "gone"].iter().any(|word| queue.split('.').any(|part| part == *word));
    ledger.settle(&bench, resting).await;
    new_pod.stop().await;
    super::say(&format!("{name}: {killed} kills, {}, 0 lost", ledger.summary()));
    bench
}

async fn some_are_published(ledger: &Ledger) {
    let before = ledger.confirmed();
    eventually("fifty more events are published", async || (ledger.confirmed() >= before + 50).then_some(())).await;
}

fn assert_no_changes(bench: &Bench) {
    let planned = bench.expect(0, &["plan", "--detailed-exitcode"]);
    assert!(planned.stdout.starts_with("No changes. The broker is as topology.yaml says.\n"), "{}", planned.stdout);
}

async fn nothing(_: &Bench) {}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_delays_and_a_changed_ladder_lose_no_event() {
    let new = OLD
        .replace("hatcheries: [200ms, 700ms]", "hatcheries: [250ms, 800ms]")
        .replace("[100ms, 300ms]", "[150ms, 400ms]")
        .replace("resolution: 50ms, horizon: 1500ms", "resolution: 30ms, horizon: 3s");
    assert_no_changes(&survives("delays", OLD, &new, nothing).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_from_classic_to_quorum_queues_loses_no_event() {
    let old = format!("{OLD}queue-type: classic\n");
    assert_no_changes(&survives("classic", &old, OLD, nothing).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_from_quorum_to_classic_queues_loses_no_event() {
    let new = format!("{OLD}queue-type: classic\n");
    assert_no_changes(&survives("quorum", OLD, &new, nothing).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_dead_letter_arguments_lose_no_event() {
    // Two queues as an earlier version of hatchery, or a person, declared them.
    let prepare = async |bench: &Bench| {
        for queue in ["t.processor.mail", "t.hatchery.700ms"] {
            redeclare(bench, queue, |arguments| {
                arguments.remove("x-dead-letter-strategy");
            });
        }
    };
    assert_no_changes(&survives("dead-letter", OLD, OLD, prepare).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renamed_topology_loses_no_event() {
    let new = OLD.replace("name: t\n", "name: u\nrenamed-from: t\n");
    let bench = survives("topology", OLD, &new, nothing).await;
    assert_no_changes(&bench);
    let strays: Vec<String> = bench.host.names("queues").into_iter().filter(|name| !name.starts_with("u.")).collect();
    assert_eq!(strays, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renamed_type_loses_no_event() {
    let new = OLD.replace("mail: {}", "letter: { renamed-from: mail }");
    let bench = survives("type", OLD, &new, nothing).await;
    assert_no_changes(&bench);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_type_loses_no_event() {
    let old = OLD.replace("mail: {}", "mail: {}, gone: {}");
    let bench = survives("type-less", &old, OLD, nothing).await;
    // The removed type's dead letters were taken out above; only now its queue is empty and can be pruned.
    bench.expect(0, &["apply", "--auto-approve", "--prune"]);
    assert_no_changes(&bench);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adopted_queues_lose_no_event() {
    // One queue without any arguments, which makes it a classic queue, and one without the owner label.
    let prepare = async |bench: &Bench| {
        redeclare(bench, "t.processor.mail", serde_json::Map::clear);
        redeclare(bench, "t.retry.import.300ms", |arguments| {
            arguments.remove("x-hatchery-owner");
        });
    };
    let new = format!("{OLD}adopt: [t.processor.mail, t.retry.import.300ms]\n");
    assert_no_changes(&survives("adopt", OLD, &new, prepare).await);
}

/// Deletes a queue and declares it again with other arguments and the same bindings.
fn redeclare(bench: &Bench, queue: &str, change: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>)) {
    let live = bench.host.list("queues").into_iter().find(|live| live["name"] == queue).unwrap();
    let bindings = bench.host.list("bindings");
    let mut arguments = live["arguments"].as_object().unwrap().clone();
    change(&mut arguments);
    bench.host.delete("queues", &[queue]);
    bench.host.put("queues", queue, &json!({ "durable": true, "arguments": arguments }));
    for binding in bindings.iter().filter(|binding| binding["destination"] == queue) {
        bench.host.bind(binding["source"].as_str().unwrap(), queue, binding["routing_key"].as_str().unwrap());
    }
}

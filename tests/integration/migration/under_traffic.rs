//! Every change, while an old pod and a new one publish and work.

use serde_json::json;

use super::{
    Random,
    kills::{self, apply},
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

/// Applies one file after another under traffic of both, then prunes, and accounts for every event.
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
    let mut killed = apply(&bench, &["apply", "--auto-approve", "--migrate"], &mut random, kills::budget()).await;
    some_are_published(&ledger).await;
    // The deploy is over.
    old_pod.silence();
    some_are_published(&ledger).await;
    old_pod.stop().await;
    // What an old worker gave back at last is moved as well.
    let prune = ["apply", "--auto-approve", "--migrate", "--prune"];
    killed += apply(&bench, &prune, &mut random, kills::budget().div_ceil(2)).await;
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
    eventually("fifty more are published", async || (ledger.confirmed() >= before + 50).then_some(())).await;
}

fn nothing_is_left_over(bench: &Bench) {
    let planned = bench.expect(0, &["plan", "--detailed-exitcode"]);
    assert!(planned.stdout.starts_with("No changes. The broker is as topology.yaml says.\n"), "{}", planned.stdout);
}

async fn nothing(_: &Bench) {}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_delays_and_another_ladder() {
    let new = OLD
        .replace("hatcheries: [200ms, 700ms]", "hatcheries: [250ms, 800ms]")
        .replace("[100ms, 300ms]", "[150ms, 400ms]")
        .replace("resolution: 50ms, horizon: 1500ms", "resolution: 30ms, horizon: 3s");
    nothing_is_left_over(&survives("delays", OLD, &new, nothing).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_classic_queues_to_quorum_queues() {
    let old = format!("{OLD}queue-type: classic\n");
    nothing_is_left_over(&survives("classic", &old, OLD, nothing).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_quorum_queues_to_classic_queues() {
    let new = format!("{OLD}queue-type: classic\n");
    nothing_is_left_over(&survives("quorum", OLD, &new, nothing).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_dead_letter_settings() {
    // As an earlier version, or somebody by hand, has declared it.
    let prepare = async |bench: &Bench| {
        for queue in ["t.processor.mail", "t.hatchery.700ms"] {
            redeclare(bench, queue, |arguments| {
                arguments.remove("x-dead-letter-strategy");
            });
        }
    };
    nothing_is_left_over(&survives("dead-letter", OLD, OLD, prepare).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_name_for_the_topology() {
    let new = OLD.replace("name: t\n", "name: u\nrenamed-from: t\n");
    let bench = survives("topology", OLD, &new, nothing).await;
    nothing_is_left_over(&bench);
    let strays: Vec<String> = bench.host.names("queues").into_iter().filter(|name| !name.starts_with("u.")).collect();
    assert_eq!(strays, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_name_for_a_type() {
    let new = OLD.replace("mail: {}", "letter: { renamed-from: mail }");
    let bench = survives("type", OLD, &new, nothing).await;
    nothing_is_left_over(&bench);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_less() {
    let old = OLD.replace("mail: {}", "mail: {}, gone: {}");
    let bench = survives("type-less", &old, OLD, nothing).await;
    // Dead letters of its events were taken out above, and only then is it empty.
    bench.expect(0, &["apply", "--auto-approve", "--prune"]);
    nothing_is_left_over(&bench);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_have_made() {
    // Without a label, and a classic queue without dead letters.
    let prepare = async |bench: &Bench| {
        redeclare(bench, "t.processor.mail", serde_json::Map::clear);
        redeclare(bench, "t.retry.import.300ms", |arguments| {
            arguments.remove("x-hatchery-owner");
        });
    };
    let new = format!("{OLD}adopt: [t.processor.mail, t.retry.import.300ms]\n");
    nothing_is_left_over(&survives("adopt", OLD, &new, prepare).await);
}

/// Declares a queue again with other arguments and the same bindings.
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

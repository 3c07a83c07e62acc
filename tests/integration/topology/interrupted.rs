//! A migration that is killed at each of its steps says so, has lost nothing, and is simply run again.
#![cfg(feature = "fail-points")]

use std::{collections::BTreeSet, process::Stdio};

use rustix::process::Signal;
use serde_json::json;

use crate::support::{amqp::Amqp, broker::eventually, cli::Bench, process::Process};

const FILE: &str = "\
version: 1
name: billing
ladder: { resolution: 10ms, horizon: 10ms }
types: { mail: { retry: { delays: [1h] } } }
";

const QUEUE: &str = "billing.processor.mail";

/// Events in the queue.
const EVENTS: u8 = 50;

/// A topology whose processing queue is a classic one, with events.
async fn classic() -> (Bench, Amqp) {
    let bench = Bench::new(FILE);
    bench.apply();
    bench.host.delete("queues", &[QUEUE]);
    let arguments = json!({ "x-hatchery-owner": "billing", "x-queue-type": "classic", "x-dead-letter-exchange": "billing.dead-letter" });
    bench.host.put("queues", QUEUE, &json!({ "durable": true, "arguments": arguments }));
    bench.host.bind("billing.processor", QUEUE, "mail.#");
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    for event in 0..EVENTS {
        amqp.publish("billing.scheduler", "mail.now", lapin::BasicProperties::default(), &[event]).await;
    }
    (bench, amqp)
}

/// Which events are in the queue, or on their way.
async fn events(bench: &Bench, amqp: &Amqp) -> BTreeSet<u8> {
    let mut events = BTreeSet::new();
    for queue in bench.host.names("queues") {
        while let Some(message) = amqp.get(&queue).await {
            events.insert(message.data[0]);
        }
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "kills a migration at each of its steps; scripts/test --all runs it"]
async fn whoever_kills_a_migration_at_any_step_runs_it_again() {
    let (bench, _) = classic().await;
    let planned = bench.expect(4, &["plan", "--detailed-exitcode"]).stdout;
    assert!(planned.contains("classic -> quorum") && planned.contains("needs --migrate"), "{planned}");
    let mut kills = 0;
    loop {
        // Each run goes one step further than the last one did, so every state between two steps is left behind once.
        let mut run = bench.command(&["apply", "--auto-approve", "--migrate"]);
        if run.env("HATCHERY_KILL_AT", "apply.step:1").ok().is_ok() {
            break;
        }
        kills += 1;
        assert!(kills < 50, "it comes no further");
        let planned = bench.run(&["plan", "--detailed-exitcode"]);
        if planned.code == 0 {
            // It was the last step.
            bench.apply();
            break;
        }
        assert!(planned.stdout.contains(QUEUE) && planned.stdout.contains("needs --migrate"), "{planned:?}");
        let refused = bench.expect(4, &["apply", "--auto-approve"]);
        assert!(refused.stderr.contains("nothing was written"), "{refused:?}");
    }
    assert!(kills >= 8, "killed at {kills} steps");
    bench.expect(0, &["plan", "--detailed-exitcode"]);
    let queues = bench.host.list("queues");
    assert!(queues.iter().all(|queue| queue["type"] == "quorum"), "{queues:?}");
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    assert_eq!(amqp.ready(QUEUE).await, u32::from(EVENTS));
    assert_eq!(events(&bench, &amqp).await, (0..EVENTS).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; scripts/test --all runs it"]
async fn whoever_ends_a_migration_is_told_and_runs_it_again() {
    let (bench, _) = classic().await;
    let mut run = bench.process(&["apply", "--auto-approve", "--migrate"]);
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = tokio::process::Command::from(run);
    run.kill_on_drop(true);
    let run = Process::spawn(run);
    let stand_in = format!("billing.moving.{QUEUE}");
    eventually("it moves", async || bench.host.names("queues").contains(&stand_in).then_some(())).await;
    run.signal(Signal::TERM);
    let ran = run.ended().await.expect(5);
    assert!(ran.stderr.contains("interrupted") && ran.stderr.contains("Run it again"), "{ran:?}");
    assert!(!bench.host.names("queues").contains(&"billing.lock".to_owned()));
    bench.expect(0, &["apply", "--auto-approve", "--migrate"]);
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    assert_eq!(events(&bench, &amqp).await, (0..EVENTS).collect());
}

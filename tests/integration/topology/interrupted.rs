//! A migration that is killed at any of its steps loses nothing, is shown as incomplete, and is completed by running it
//! again.
#![cfg(feature = "fail-points")]

use std::{collections::BTreeSet, process::Stdio};

use hatchery::internals::names;
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

/// The number of events in the queue.
const EVENTS: u8 = 50;

/// Applies a topology, replaces its processing queue by a classic one, and publishes events into it.
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

/// Takes and returns the events of all queues. RabbitMQ closes the connection of who gets a message of a stream.
async fn events(bench: &Bench, amqp: &Amqp) -> BTreeSet<u8> {
    let mut events = BTreeSet::new();
    for queue in bench.host.names("queues").into_iter().filter(|queue| !names::streams("billing").contains(queue)) {
        while let Some(message) = amqp.get(&queue).await {
            events.insert(message.data[0]);
        }
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "kills a migration at each of its steps; scripts/test --all runs it"]
async fn a_migration_killed_at_any_step_is_completed_by_running_it_again() {
    let (bench, _) = classic().await;
    let planned = bench.expect(4, &["plan", "--detailed-exitcode"]).stdout;
    assert!(planned.contains("classic -> quorum") && planned.contains("needs --migrate"), "{planned}");
    let mut kills = 0;
    loop {
        // Each run is killed one step further than the last one, so every state between two steps occurs once.
        let mut run = bench.command(&["apply", "--auto-approve", "--migrate"]);
        if run.env("HATCHERY_KILL_AT", "apply.step:1").ok().is_ok() {
            break;
        }
        kills += 1;
        assert!(kills < 50, "the migration makes no progress");
        let planned = bench.run(&["plan", "--detailed-exitcode"]);
        if planned.code == 0 {
            // The kill came after the last step.
            bench.apply();
            break;
        }
        assert!(planned.stdout.contains(QUEUE) && planned.stdout.contains("needs --migrate"), "{planned:?}");
        let refused = bench.expect(4, &["apply", "--auto-approve"]);
        assert!(refused.stderr.contains("nothing was written"), "{refused:?}");
    }
    assert!(kills >= 8, "the migration was killed at {kills} steps only");
    bench.expect(0, &["plan", "--detailed-exitcode"]);
    let queues = bench.host.list("queues");
    assert!(queues.iter().all(|queue| queue["type"] != "classic"), "{queues:?}");
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    assert_eq!(amqp.ready(QUEUE).await, u32::from(EVENTS));
    assert_eq!(events(&bench, &amqp).await, (0..EVENTS).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "interrupts a migration, whose counts of 0 have to last 12 s; scripts/test --all runs it"]
async fn a_migration_that_is_interrupted_says_so_and_is_completed_by_running_it_again() {
    let (bench, _) = classic().await;
    let mut run = bench.process(&["apply", "--auto-approve", "--migrate"]);
    run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = tokio::process::Command::from(run);
    run.kill_on_drop(true);
    let run = Process::spawn(run);
    let stand_in = format!("billing.moving.{QUEUE}");
    eventually("the migration moves messages", async || bench.host.names("queues").contains(&stand_in).then_some(()))
        .await;
    run.signal(Signal::TERM);
    let ran = run.ended().await.expect(5);
    assert!(ran.stderr.contains("interrupted") && ran.stderr.contains("Run it again"), "{ran:?}");
    assert!(!bench.host.names("queues").contains(&"billing.lock".to_owned()));
    bench.expect(0, &["apply", "--auto-approve", "--migrate"]);
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    assert_eq!(events(&bench, &amqp).await, (0..EVENTS).collect());
}

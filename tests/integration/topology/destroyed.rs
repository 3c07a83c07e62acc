//! `destroy` removes all that the topology owns and nothing else, and refuses if a queue is in use.

use hatchery::Outcome;
use serde_json::{Value, json};

use crate::support::{
    amqp::Amqp,
    broker::{eventually, text},
    cli::{Bench, Ran},
    declared::Declared,
    process::Place,
    workers::Working,
};

/// A topology with few levels, so that a destroy is quick.
const SMALL: &str = "\
version: 1
name: billing
hatcheries: [1h]
ladder: { resolution: 10ms, horizon: 30ms }
types: { mail: { retry: { delays: [1h] } } }
";

fn everything(bench: &Bench) -> Vec<Vec<Value>> {
    let queues = bench.host.list("queues").iter().map(|queue| json!(text(queue, "name"))).collect();
    let others = ["exchanges", "bindings", "policies"].map(|kind| {
        let mut objects = bench.host.list(kind);
        // The statistics change for seconds after the last message.
        objects.iter_mut().filter_map(Value::as_object_mut).for_each(|object| drop(object.remove("message_stats")));
        objects
    });
    [queues].into_iter().chain(others).collect()
}

/// Waits until the statistics, which are seconds old, show this count.
async fn counted(bench: &Bench, queue: &str, count: &str, expected: u64) {
    let counted = async || {
        let queues = bench.host.list("queues");
        queues.iter().any(|live| live["name"] == queue && live[count] == expected).then_some(())
    };
    eventually(&format!("the statistics of {queue} show {expected} {count}"), counted).await;
}

/// Asserts that a destroy is refused with this line, and removes nothing.
#[track_caller]
fn assert_refused(bench: &Bench, line: &str) -> Ran {
    let before = everything(bench);
    let ran = bench.expect(4, &["destroy", "--auto-approve"]);
    assert!(ran.stdout.contains(line) && ran.stderr.contains("nothing was removed"), "{ran:?}");
    assert_eq!(everything(bench), before);
    ran
}

#[test]
#[ignore = "destroys a topology, whose counts of 0 have to last 12 s; scripts/test --all runs it"]
fn a_destroy_removes_what_the_topology_owns_and_nothing_else() {
    let bench = Bench::new(SMALL);
    bench.host.put("queues", "legacy.tmp", &json!({ "durable": true }));
    bench.host.put("exchanges", "legacy", &json!({ "type": "topic", "durable": true }));
    bench.host.bind("legacy", "legacy.tmp", "#");
    let theirs = json!({ "durable": true, "arguments": { "x-hatchery-owner": "other" } });
    bench.host.put("queues", "billing.theirs", &theirs);
    let before = everything(&bench);
    bench.apply();

    let asked = bench.expect(2, &["destroy"]);
    assert!(asked.stdout.contains("- queue    billing.processor.mail    (0 ready)\n"), "{}", asked.stdout);
    assert!(asked.stdout.contains("- ladder   billing.ladder.10ms-2"), "{}", asked.stdout);
    assert!(!asked.stdout.contains("legacy") && !asked.stdout.contains("theirs"), "{}", asked.stdout);
    assert!(asked.stdout.lines().all(|line| line.chars().count() <= 80), "{}", asked.stdout);
    assert!(asked.stderr.contains("--auto-approve"), "{asked:?}");
    assert_eq!(bench.expect(2, &["destroy", "--force"]).code, 2);
    bench.expect(0, &["plan", "--detailed-exitcode"]);

    let ran = bench.expect(0, &["destroy", "--auto-approve"]);
    assert!(ran.last().starts_with("Destroyed: 21 objects removed, in "), "{}", ran.stdout);
    assert_eq!(everything(&bench), before);
    let ran = bench.expect(0, &["destroy"]);
    assert_eq!(ran.stdout, "Nothing to remove. The broker has nothing that billing owns.\n");
    bench.apply();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destroy_refuses_a_queue_with_messages_without_force() {
    let bench = Bench::new(SMALL);
    bench.apply();
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    amqp.publish("billing.scheduler", "mail.now", lapin::BasicProperties::default(), b"1").await;
    amqp.publish("billing.scheduler", "mail.1h", lapin::BasicProperties::default(), b"2").await;
    counted(&bench, "billing.processor.mail", "messages", 1).await;
    counted(&bench, "billing.hatchery.1h", "messages", 1).await;
    let ran = assert_refused(&bench, "! queue    billing.processor.mail    not empty (1 ready)");
    assert!(
        ran.stdout.contains("! queue    billing.hatchery.1h       not empty (1 ready, at most 1h)"),
        "{}",
        ran.stdout
    );

    let ran = bench.expect(4, &["destroy", "--auto-approve", "-o", "json"]).json();
    assert_eq!((&ran["destroyed"], &ran["blocked"], &ran["removed"]), (&json!(false), &json!(true), &json!(0)));
    let forced = bench.expect(0, &["destroy", "--auto-approve", "--force", "-o", "json"]).json();
    assert_eq!((&forced["destroyed"], &forced["removed"]), (&json!(true), &json!(21)));
    assert_eq!(everything(&bench), vec![Vec::<Value>::new(); 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "waits for figures of RabbitMQ, which come every few seconds; scripts/test --all runs it"]
async fn a_destroy_refuses_a_queue_with_a_consumer() {
    use lapin::{options::BasicConsumeOptions, types::FieldTable};

    let bench = Bench::new(SMALL);
    bench.apply();
    let connection = lapin::Connection::connect(&bench.host.amqp(), lapin::ConnectionProperties::default()).await;
    let connection = connection.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let options = BasicConsumeOptions::default();
    let consumer = channel
        .basic_consume("billing.dead-letter.mail".into(), "".into(), options, FieldTable::default())
        .await
        .unwrap();
    counted(&bench, "billing.dead-letter.mail", "consumers", 1).await;
    assert_refused(&bench, "! queue    billing.dead-letter.mail  has 1 consumer (0 ready)");
    drop((consumer, connection));
}

#[test]
fn a_destroy_refuses_a_queue_that_a_foreign_exchange_is_bound_to() {
    let bench = Bench::new(SMALL);
    bench.apply();
    bench.host.put("exchanges", "legacy", &json!({ "type": "topic", "durable": true }));
    bench.host.bind("legacy", "billing.processor.mail", "#");
    assert_refused(&bench, "! queue    billing.processor.mail    the exchange legacy, which is not owned,");
    bench.expect(0, &["destroy", "--auto-approve", "--force"]);
    assert_eq!(bench.host.names("exchanges"), ["legacy"]);
    assert_eq!(bench.host.names("queues"), Vec::<String>::new());
}

#[cfg(feature = "fail-points")]
#[test]
#[ignore = "kills four destroys and runs a fifth, whose counts of 0 have to last 12 s; scripts/test --all runs it"]
fn a_killed_destroy_is_completed_by_running_it_again() {
    let bench = Bench::new(SMALL);
    bench.apply();
    for passing in [1, 2, 5, 3] {
        let mut run = bench.command(&["destroy", "--auto-approve"]);
        let killed = run.env("HATCHERY_KILL_AT", format!("apply.step:{passing}")).ok();
        assert!(killed.is_err(), "the destroy was not killed");
        assert!(!bench.host.names("queues").is_empty());
    }
    bench.expect(0, &["destroy", "--auto-approve"]);
    assert_eq!(everything(&bench), vec![Vec::<Value>::new(); 4]);
}

#[test]
#[ignore = "destroys a topology, whose counts of 0 have to last 12 s; scripts/test --all runs it"]
fn a_destroy_removes_the_stand_in_of_an_interrupted_migration() {
    let bench = Bench::new(SMALL);
    bench.apply();
    let arguments = json!({ "x-hatchery-owner": "billing", "x-queue-type": "quorum" });
    let name = "billing.moving.billing.processor.mail";
    bench.host.put("queues", name, &json!({ "durable": true, "arguments": arguments }));
    let arguments = json!({ "x-hatchery-owner": "billing" });
    bench.host.put("exchanges", name, &json!({ "type": "topic", "durable": true, "arguments": arguments }));
    bench.host.bind(name, "billing.processor.mail", "#");
    bench.host.bind("billing.processor", name, "mail.#");
    bench.expect(0, &["destroy", "--auto-approve"]);
    assert_eq!(everything(&bench), vec![Vec::<Value>::new(); 4]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "destroys a topology, whose counts of 0 have to last 12 s; scripts/test --all runs it"]
async fn a_destroy_waits_for_the_figures_of_a_worker_that_has_just_ended() {
    // Few queues, because a busy broker takes long to delete one.
    let declared = Declared::new("ladder: { resolution: 1s, horizon: 3s }\ntypes: { mail: {} }\n").await;
    let (place, queue) = (Place::new(&declared), declared.processing("mail"));
    let worker = Working::start(&declared.connect().await, "mail", |_| Outcome::Done);
    let has_consumer = async || {
        let queues = declared.host.list("queues");
        queues.iter().any(|live| live["name"] == *queue && live["consumers"] == 1).then_some(())
    };
    eventually("the statistics show the worker", has_consumer).await;
    worker.kill().await;
    let amqp = declared.amqp().await;
    eventually("its consumer is gone", async || (amqp.consumers(&queue).await == 0).then_some(())).await;
    let mut command = place.command(&["destroy", "--auto-approve"]);
    command.env("RABBITMQ_MANAGEMENT_URL", declared.host.management());
    let ended = place.run(&mut command).await.expect(0);
    assert!(!ended.stderr.contains("--force"), "{ended:?}");
    assert_eq!(declared.host.names("queues"), Vec::<String>::new());
}

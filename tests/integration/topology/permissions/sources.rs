//! The users of a source.

use std::fs;

use lapin::BasicProperties;
use rstest::rstest;
use rustix::process::Signal;
use serde_json::json;

use super::{DEAD, PROGRAM, rights, run, start};
use crate::support::{
    amqp::Amqp,
    broker::{Rights, eventually},
    cli::Bench,
    redis,
};

/// The source `hr`, of the queue of somebody else or of a declared one.
const SOURCES: [(&str, &str); 2] = [("queue: hr-changes", "hr-changes"), ("declare: on", "billing.source.hr")];

/// A topology with a source, and in the source's queue a message that becomes an event, and one that becomes none.
async fn source(intake: &str, queue: &str) -> (Bench, Amqp) {
    let prefix = redis::prefix();
    let bench = Bench::new(&format!(
        "version: 1\nname: billing\nredis: {{ prefix: {prefix} }}\nhatcheries: [50ms]\ntypes:\n  \
         mail: {{ lease: 1s, retry: {{ delays: [20ms] }} }}\nsources:\n  hr: {{ {intake}, events: [ {{ type: mail, reference: /number }} ] }}\n"
    ));
    bench.apply();
    if queue == "hr-changes" {
        let quorum = json!({ "durable": true, "arguments": { "x-queue-type": "quorum" } });
        bench.host.put("queues", queue, &quorum);
    }
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    for (id, body) in [("good", r#"{"number":1}"#), ("bad", "{}")] {
        amqp.publish("", queue, BasicProperties::default().with_message_id(id.into()), body.as_bytes()).await;
    }
    (bench, amqp)
}

const TAKE: [&str; 4] = ["work", "--source", "hr", "--stop-when-empty"];

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_permissions_are_enough_for_a_source(
    #[values(SOURCES[0], SOURCES[1])] (intake, queue): (&str, &str),
) {
    let (bench, amqp) = source(intake, queue).await;
    let worker = run(&bench, &bench.host.user("source", &rights("source")), &TAKE).expect(0);
    assert!(!worker.stderr.contains("REFUSED"), "{worker:?}");
    assert_eq!((amqp.ready("billing.processor.mail").await, amqp.ready("billing.dead-letter.source-hr").await), (1, 1));

    let replayer = bench.host.user("replayer", &rights("replayer"));
    run(&bench, &replayer, &["dead-letter", "replay", "--type", "source-hr", "--yes"]).expect(0);
    assert_eq!((amqp.ready(queue).await, amqp.ready("billing.dead-letter.source-hr").await), (1, 0));
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs several programs for each kind of source; scripts/test --all runs it"]
async fn a_source_needs_read_permission(#[values(SOURCES[0], SOURCES[1])] (intake, queue): (&str, &str)) {
    let (bench, amqp) = source(intake, queue).await;
    let blind = Rights { read: r"^billing\.control$".into(), ..rights("source") };
    let ran = run(&bench, &bench.host.user("source", &blind), &TAKE).expect(6);
    assert!(ran.stderr.contains("ACCESS_REFUSED") && ran.stderr.contains(queue), "{ran:?}");
    assert_eq!(amqp.ready(queue).await, 2);
}

#[rstest]
#[case::an_event("scheduler")]
#[case::a_dead_letter("dead-letter")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs several programs for each kind of source; scripts/test --all runs it"]
async fn a_source_needs_write_permission_on_each_exchange_and_loses_nothing_without_it(
    #[case] exchange: &str,
    #[values(SOURCES[0], SOURCES[1])] (intake, queue): (&str, &str),
) {
    let (bench, amqp) = source(intake, queue).await;
    let all = rights("source");
    let write = all.write.replacen(exchange, "nothing", 1);
    assert_ne!(write, all.write, "the documented pattern does not name the exchange");
    let user = bench.host.user("source", &Rights { write, ..all.clone() });
    let worker = start(&bench, &user, &TAKE);
    let refuses = format!("billing.{exchange}");
    eventually(&format!("{refuses} refuses a publish"), async || {
        let log = fs::read_to_string(bench.folder().join("log")).unwrap();
        log.lines().any(|line| line.contains("ACCESS_REFUSED") && line.contains(&refuses)).then_some(())
    })
    .await;
    drop((worker, user));
    run(&bench, &bench.host.user("source", &all), &TAKE).expect(0);
    let ready = (amqp.ready("billing.dead-letter.source-hr").await, amqp.ready(queue).await);
    assert_eq!(ready, (1, 0));
    assert!(amqp.ready("billing.processor.mail").await >= 1);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs several programs for each kind of source; scripts/test --all runs it"]
async fn the_documented_permissions_are_enough_for_a_source_and_a_type_in_one_process(
    #[values(SOURCES[0], SOURCES[1])] (intake, queue): (&str, &str),
) {
    let (bench, amqp) = source(intake, queue).await;
    fs::write(bench.folder().join("program"), PROGRAM).unwrap();
    let user = bench.host.user("both", &rights("both"));
    let worker = start(&bench, &user, &["work", "--source", "hr", "--type", "mail", "--exec", "sh", "program"]);
    eventually("the message and the event are dead letters", async || {
        let letters = (amqp.ready("billing.dead-letter.source-hr").await, amqp.ready(DEAD).await);
        (letters == (1, 1)).then_some(())
    })
    .await;
    worker.signal(Signal::TERM);
    worker.ended().await.expect(0);
    let log = fs::read_to_string(bench.folder().join("log")).unwrap();
    assert!(!log.contains("REFUSED") && !log.contains("not published"), "{log}");
}

#[rstest]
#[case::the_source("hr-changes", "hr-changes")]
#[case::the_type("processor", "billing.processor.mail")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_and_a_type_in_one_process_need_permission_to_read_both(#[case] name: &str, #[case] refused: &str) {
    let (bench, _amqp) = source("queue: hr-changes", "hr-changes").await;
    let all = rights("both");
    let read = all.read.replacen(name, "nothing", 1);
    assert_ne!(read, all.read, "the documented pattern does not name the queue");
    let user = bench.host.user("both", &Rights { read, ..all });
    let ran = run(&bench, &user, &["work", "--source", "hr", "--type", "mail", "--exec", "/bin/true"]).expect(6);
    assert!(ran.stderr.contains("ACCESS_REFUSED") && ran.stderr.contains(refused), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_to_a_declared_queue_needs_the_default_exchange_alone() {
    let (bench, amqp) = source("declare: on", "billing.source.hr").await;
    let feeder = bench.host.user("feeder", &rights("feeder"));
    let feeder = Amqp::connect(&feeder.amqp()).await;
    feeder.publish("", "billing.source.hr", BasicProperties::default(), b"{}").await;
    assert_eq!(amqp.ready("billing.source.hr").await, 3);
}

//! The stream of the life of events: its retention, and what becomes of it when the file switches it off.

use lapin::BasicProperties;
use serde_json::{Value, json};

use crate::support::{
    amqp::Amqp,
    broker::{eventually, text},
    cli::Bench,
};

const STREAM: &str = "billing.life-cycle";

fn file(key: &str) -> String {
    format!(
        "version: 1\nname: billing\nladder: {{ resolution: 10ms, horizon: 10ms }}\ntypes: {{ mail: {{}} }}\nlife-cycle: {key}\n"
    )
}

/// Waits until RabbitMQ applies this definition to the stream.
async fn expect_policy(bench: &Bench, definition: Value) {
    eventually(&format!("the stream has {definition}"), async || {
        let queues = bench.host.list("queues");
        let stream = queues.iter().find(|queue| text(queue, "name") == STREAM)?;
        (stream["effective_policy_definition"] == definition).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_retention_changes_in_place_and_off_removes_the_stream() {
    let bench = Bench::new(&file("all"));
    bench.apply();
    let segment = "stream-max-segment-size-bytes";
    expect_policy(&bench, json!({ "max-age": "604800s", "max-length-bytes": 1_u32 << 30, segment: 100_u32 << 20 }))
        .await;
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    amqp.publish(STREAM, "mail.failed", BasicProperties::default(), b"{}").await;

    bench.write(&file("{ keep: 1500ms, max-size: 10MiB }"));
    let planned = bench.expect(3, &["plan", "--detailed-exitcode"]).stdout;
    assert!(planned.contains("max-age 604800s -> 2s") && planned.ends_with("Plan: 0 add, 1 change.\n"), "{planned}");
    bench.apply();
    expect_policy(&bench, json!({ "max-age": "2s", "max-length-bytes": 10_u32 << 20, segment: 1_u32 << 20 })).await;
    eventually("the stream has its record", async || (amqp.ready(STREAM).await == 1).then_some(())).await;

    bench.write(&file("off"));
    let planned = bench.expect(0, &["plan", "--detailed-exitcode"]).stdout;
    for leftover in ["- exchange", "- queue   ", "- policy  "] {
        assert!(planned.contains(&format!("{leftover} {STREAM}")), "no {leftover} in {planned}");
    }
    bench.expect(0, &["apply", "--auto-approve", "--prune"]);
    for kind in ["exchanges", "queues", "policies"] {
        assert!(!bench.host.names(kind).contains(&STREAM.to_owned()), "{kind}");
    }
    bench.expect(0, &["plan", "--detailed-exitcode"]);
}

/// Segments of 1 MiB are the smallest that a file can ask for.
#[tokio::test]
async fn a_full_stream_forgets_its_oldest_records_and_keeps_the_others() {
    let bench = Bench::new(&file("{ max-size: 10MiB }"));
    bench.apply();
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    let record = vec![b'x'; 64 << 10];
    for _ in 0..400 {
        amqp.publish(STREAM, "mail.failed", BasicProperties::default(), &record).await;
    }
    // 10 MiB are 160 records, and a segment has 16.
    eventually("RabbitMQ has removed the oldest segments", async || {
        let kept = amqp.ready(STREAM).await;
        (140..180).contains(&kept).then_some(())
    })
    .await;
}

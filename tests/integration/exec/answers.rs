//! The input of a program, and the meaning of its exit status and answer. In most of these tests the program is `sh`, and the
//! payload is its script.

use std::fs;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::NewEvent;
use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable},
};
use rstest::rstest;

use crate::support::{
    amqp::shown,
    broker::eventually,
    declared::{Declared, publish},
    process::{Place, Process},
};

/// Starts a worker whose program is `sh`, which reads the payload as its script from standard input.
fn shell(place: &Place<'_>) -> Process {
    Process::spawn(place.command(&["-o", "json", "work", "--type", "job", "--exec", "sh"]))
}

#[tokio::test]
async fn a_program_gets_the_events_properties_as_variables_and_no_others_of_their_names() {
    let declared = Declared::new("types: { job: { coalesce: latest } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let told = "env | grep '^EVENT_' | sort > told-$EVENT_ID; echo >> told-$EVENT_ID";
    let full = NewEvent::new("job", told)
        .id("full")
        .reference("Ünï 'quoted' $HOME")
        .at("2020-06-01T09:00:00.5Z".parse().unwrap())
        .correlation_id("c d")
        .traceparent("00-1-2-01")
        .content_type("text/x-sh")
        .reason("message: queue=hr id=7");
    publish(&hatchery, full).await;
    publish(&hatchery, NewEvent::new("job", told).id("bare")).await;
    let mut command = place.command(&["-o", "json", "work", "--type", "job", "--exec", "sh"]);
    command.env("EVENT_REFERENCE", "the worker's own").env("EVENT_NBF", "never").env("EVENT_REASON", "none");
    let worker = Process::spawn(command);
    for (id, expected) in [
        (
            "full",
            vec![
                "EVENT_ATTEMPTS=0",
                "EVENT_CONTENT_TYPE=text/x-sh",
                "EVENT_CORRELATION_ID=c d",
                "EVENT_CREATED_AT=…",
                "EVENT_FENCE=…",
                "EVENT_ID=full",
                "EVENT_NBF=2020-06-01T09:00:00.500Z",
                "EVENT_REASON=message: queue=hr id=7",
                "EVENT_REFERENCE=Ünï 'quoted' $HOME",
                "EVENT_TRACEPARENT=00-1-2-01",
                "EVENT_TYPE=job",
                "EVENT_VERSION=…",
                "",
            ],
        ),
        (
            "bare",
            vec![
                "EVENT_ATTEMPTS=0",
                "EVENT_CONTENT_TYPE=application/json",
                "EVENT_CREATED_AT=…",
                "EVENT_FENCE=…",
                "EVENT_ID=bare",
                "EVENT_TYPE=job",
                "",
            ],
        ),
    ] {
        let file = format!("told-{id}");
        let ended = async || place.lines(&file).last().is_some_and(String::is_empty).then_some(());
        eventually("the program has run", ended).await;
        let varies = |line: &String| match line.split_once('=') {
            Some((name @ ("EVENT_CREATED_AT" | "EVENT_FENCE" | "EVENT_VERSION"), value)) => {
                assert!(value.starts_with(|first: char| first.is_ascii_digit()), "{line}");
                format!("{name}=…")
            }
            _ => line.clone(),
        };
        assert_eq!(place.lines(&file).iter().map(varies).collect::<Vec<_>>(), expected);
    }
    assert_eq!(worker.stop().await["done"], 2);
}

#[rstest]
#[case::never("echo 'no such employee' >&2; exit 65", "dead-letter: no such employee")]
#[case::never_without_a_word("exit 65", "dead-letter: exit status 65")]
#[case::failed("echo first >&2; printf 'the last  line\\n\\n  \\n' >&2; exit 1", "error=\"the last line\"")]
#[case::failed_without_a_word("echo 'not an error'; exit 7", "error=\"exit status 7\"")]
#[case::not_found("no-such-command 2>/dev/null", "error=\"exit status 127\"")]
#[case::killed("kill -9 $$", "error=\"killed by signal 9\"")]
#[case::no_utf_8("printf 'caf\\351\\n' >&2; exit 1", "error=\"caf\u{fffd}\"")]
#[case::answer("echo working; echo '{\"dead-letter\": {\"reason\": \"left\"}}'", "dead-letter: left")]
#[case::broken_answer("echo '{\"requeue\": {\"at\": \"soon\"}}'", "error=\"the answer cannot be understood: ")]
#[case::an_answer_counts_with_0_alone("echo '{\"discard\": {}}'; exit 3", "error=\"exit status 3\"")]
#[tokio::test]
async fn a_failed_programs_error_is_the_reason_of_its_dead_letter(#[case] script: &str, #[case] reason: &str) {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 1 } } }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("job", script.to_owned())).await;
    let place = Place::new(&declared);
    let worker = shell(&place);
    let amqp = declared.amqp().await;
    let letter = amqp.take(&declared.dead_letters("job")).await;
    let said = shown(&letter, "reason").unwrap();
    assert!(said.contains(reason), "{said}");
    assert_eq!(worker.stop().await["dead_lettered"], 1);
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[rstest]
#[case::chatter("echo imported 3 rows", "done", 1)]
#[case::other_json("echo '{\"status\": \"ok\"}'", "done", 1)]
#[case::discard("echo '{\"discard\": {\"reason\": \"left\"}}'", "discarded", 1)]
#[case::retry("[ $EVENT_ATTEMPTS != 0 ] || echo '{\"retry\": {\"after\": \"100ms\"}}'", "retried", 2)]
#[case::failure("[ $EVENT_ATTEMPTS != 0 ]", "retried", 2)]
#[case::requeue(
    "[ \"$EVENT_REASON\" = again ] || echo '{\"requeue\": {\"after\": \"100ms\", \"reason\": \"again\"}}'",
    "requeued",
    2
)]
#[tokio::test]
async fn a_programs_answer_decides_what_follows(#[case] script: &str, #[case] counted: &str, #[case] runs: usize) {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 2 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    publish(&hatchery, NewEvent::new("job", format!("echo x >> runs\n{script}"))).await;
    let worker = shell(&place);
    eventually("the program has run as often as expected", async || (place.lines("runs").len() == runs).then_some(()))
        .await;
    let summary = worker.stop().await;
    assert_eq!(summary[counted], 1, "{summary}");
    let ended = summary["done"].as_u64().unwrap() + summary["discarded"].as_u64().unwrap();
    assert_eq!((ended, place.lines("runs").len()), (1, runs), "{summary}");
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn untrusted_text_neither_forges_a_line_of_the_log_nor_controls_a_terminal() {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 1 } } }").await;
    let place = Place::new(&declared);
    let amqp = declared.amqp().await;
    let bad = "\u{1b}[31m\n2026-06-01T00:00:00Z ERROR forged";
    let headers = |header: &str| {
        let mut table = FieldTable::default();
        table.insert(header.into(), AMQPValue::LongString(bad.into()));
        BasicProperties::default().with_message_id(format!("id{bad}").into()).with_headers(table)
    };
    // A poison message whose routing key forges a line.
    amqp.publish("t.processor", &format!("job.{bad}"), headers("attempts"), b"{}").await;
    // A failure whose reason forges a line.
    let failing = NewEvent::new("job", format!("printf '%s' '{bad}' >&2; exit 1"));
    publish(&declared.connect().await, failing).await;
    let worker = Process::spawn(place.worker("job", &place.write("handler.sh", "exec sh")));
    let letters = declared.dead_letters("job");
    eventually("both messages are dead letters", async || (amqp.ready(&letters).await == 2).then_some(())).await;
    let summary = worker.stop().await;
    assert_eq!((&summary["poisoned"], &summary["dead_lettered"]), (&1.into(), &1.into()));
    let log = std::fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("forged") && log.contains("routing_key"), "{log}");
    assert!(
        !log.contains('\u{1b}') && !log.lines().any(|line| line.starts_with("2026-06-01T00:00:00Z ERROR")),
        "{log}"
    );
}

/// JSON that would change if it were parsed and written again.
const JSON: &str = concat!(
    "{\"b\" :  1.0,\t\"a\": 12345678901234567890.10, \"é\": \"\\u00e9\\/\\n\", \"e\":1E+2, \"nested\": [ ] ,",
    "\"a\": -0, \"big\": 340282366920938463463374607431768211456 }"
);

fn payloads() -> Vec<(&'static str, Vec<u8>)> {
    let mebibyte = (0..1 << 20).map(|n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    vec![
        ("empty", Vec::new()),
        ("all-bytes", (0..=255).collect()),
        ("mebibyte", mebibyte),
        ("json", JSON.as_bytes().to_vec()),
        ("lines", b"\n\r\n\0\n".to_vec()),
    ]
}

async fn webhook() -> Declared {
    Declared::new("types: { webhook: {} }").await
}

/// Runs a worker until its program has stored every payload, and compares them with the originals.
async fn expect_unchanged(place: &Place<'_>) {
    let script = place.write("handler.sh", "cat > \"out-$EVENT_ID\"; echo $EVENT_ID >> done");
    let worker = Process::spawn(place.worker("webhook", &script));
    let count = payloads().len();
    eventually("the program has stored every payload", async || (place.lines("done").len() == count).then_some(()))
        .await;
    for (name, payload) in payloads() {
        let out = fs::read(place.path(&format!("out-{name}"))).unwrap();
        assert!(out == payload, "{name}: {} bytes of {}", out.len(), payload.len());
    }
    assert_eq!(worker.stop().await["done"], count);
    assert!(place.declared.amqp().await.filled(&place.declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_published_file_reaches_the_program_unchanged() {
    let declared = webhook().await;
    let place = Place::new(&declared);
    for (name, payload) in payloads() {
        fs::write(place.path(name), payload).unwrap();
        let mut publish = place.command(&["publish", "webhook", "--id", name, "--payload", &format!("@{name}")]);
        assert_eq!(place.run(&mut publish).await.expect(0).stdout, format!("{name}\n"));
    }
    expect_unchanged(&place).await;
}

#[tokio::test]
async fn a_published_batch_reaches_the_program_unchanged() {
    let declared = webhook().await;
    let place = Place::new(&declared);
    let line = |(name, payload): (&str, Vec<u8>)| {
        let payload = if name == "json" {
            format!("\"payload\" : {JSON} ")
        } else {
            format!("\"payload_base64\":\"{}\"", BASE64_STANDARD.encode(payload))
        };
        format!("{{\"type\": \"webhook\", \"id\": \"{name}\", {payload}}}")
    };
    let batch: Vec<String> = payloads().into_iter().map(line).collect();
    place.write("batch.ndjson", &batch.join("\n"));
    let published = place.run(&mut place.command(&["publish", "--batch", "batch.ndjson"])).await.expect(0);
    assert_eq!(published.stdout, format!("{} published, 0 refused\n", payloads().len()));
    expect_unchanged(&place).await;
}

//! Tests the records of all transitions, and that those of newer versions are read.

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::domain::wire::{self, Incoming, Properties};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn at() -> Timestamp {
    "2026-06-01T09:00:00.123456Z".parse().expect("a time")
}

fn event() -> Event {
    let headers = [
        ("reference", wire::Value::text("1234")),
        ("attempts", wire::Value::I64(1)),
        ("traceparent", wire::Value::text(&format!("00-{TRACE}-00f067aa0ba902b7-01"))),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value)).into();
    let properties = Properties { message_id: Some("a1".into()), headers, ..Properties::default() };
    let incoming = Incoming { routing_key: "mail.now".into(), properties, body: "secret".into() };
    wire::decode(&"mail".parse().expect("a word"), incoming, at(), String::new).expect("an event")
}

fn of(transition: &Transition) -> LifeCycleRecord {
    LifeCycleRecord::of(&event(), transition, at(), Some("worker-7"))
}

fn failed(then: Then) -> Transition {
    Transition::Failed { attempt: 2, max_attempts: 6, error: "refused".into(), took: TOOK, then }
}

const TOOK: Duration = Duration::from_millis(1_500);
const MINUTE: Duration = Duration::from_mins(1);

#[rstest]
#[case(Transition::Started, json!({ "transition": "started", "attempt": 2 }))]
#[case(Transition::Done { took: TOOK }, json!({ "transition": "done", "attempt": 2, "took": 1_500 }))]
#[case(Transition::Discarded { reason: "left".into(), took: TOOK }, json!({ "transition": "discarded", "attempt": 2, "reason": "left", "took": 1_500 }))]
#[case(Transition::Cancelled { took: TOOK }, json!({ "transition": "cancelled", "took": 1_500 }))]
#[case(failed(Then::Retry { after: MINUTE }), json!({ "transition": "failed", "attempt": 2, "max_attempts": 6, "then": "retry", "due": "2026-06-01T09:01:00.123Z", "reason": "refused", "took": 1_500 }))]
#[case(failed(Then::InPlace { tried: 1, after: TOOK }), json!({ "transition": "failed", "attempt": 2, "max_attempts": 6, "then": "in-place", "due": "2026-06-01T09:00:01.623Z", "reason": "refused", "took": 1_500 }))]
#[case(failed(Then::Block { after: MINUTE }), json!({ "transition": "failed", "attempt": 2, "then": "block", "due": "2026-06-01T09:01:00.123Z", "reason": "refused", "took": 1_500 }))]
#[case(Transition::Dropped { reason: "refused".into(), took: TOOK }, json!({ "transition": "dropped", "attempt": 2, "reason": "refused", "took": 1_500 }))]
#[case(Transition::Requeued { at: at(), reason: "end_date".into(), took: TOOK }, json!({ "transition": "requeued", "due": "2026-06-01T09:00:00.123Z", "reason": "end_date", "took": 1_500 }))]
#[case(Transition::PutOff, json!({ "transition": "put-off" }))]
#[case(Transition::Replaced, json!({ "transition": "replaced" }))]
#[case(Transition::Expired { at: at(), dead_lettered: true }, json!({ "transition": "expired", "then": "dead-letter", "reason": "expired at 2026-06-01T09:00:00.123Z, before it started" }))]
#[case(Transition::Expired { at: at(), dead_lettered: false }, json!({ "transition": "expired", "then": "discard", "reason": "expired at 2026-06-01T09:00:00.123Z, before it started" }))]
#[case(Transition::DeadLettered { reason: "given up".into(), took: Some(TOOK) }, json!({ "transition": "dead-lettered", "attempt": 2, "reason": "given up", "took": 1_500 }))]
#[case(Transition::DeadLettered { reason: "crash".into(), took: None }, json!({ "transition": "dead-lettered", "reason": "crash" }))]
#[case(Transition::LeaseLost, json!({ "transition": "lease-lost" }))]
fn each_transition_has_its_record(#[case] transition: Transition, #[case] mut expected: Value) {
    for (name, value) in [
        ("at", "2026-06-01T09:00:00.123Z"),
        ("type", "mail"),
        ("id", "a1"),
        ("reference", "1234"),
        ("by", "worker-7"),
        ("trace", TRACE),
    ] {
        expected[name] = value.into();
    }
    let record = of(&transition);
    let json: Value = serde_json::from_slice(&record.body()).expect("JSON");
    assert_eq!(json, expected);
    let read = LifeCycleRecord::parse(&record.body()).expect("a record");
    assert_eq!(read.body(), record.body());
    assert_eq!(read.transition, record.transition);
    #[cfg(feature = "internals")]
    jsonschema::draft202012::new(&schemars::schema_for!(LifeCycleRecord).to_value())
        .expect("a schema")
        .validate(&json)
        .expect("as the schema says");
}

#[test]
fn a_record_of_a_newer_version_is_read_and_written_again_as_it_was() {
    let text =
        r#"{"at":"2026-06-01T09:00:00.123Z","transition":"teleported","type":"mail","id":"a1","to":{"mars":[1]}}"#;
    let record = LifeCycleRecord::parse(text.as_bytes()).expect("a record");
    assert_eq!(record.transition, TransitionName::Other("teleported".into()));
    assert_eq!(record.more["to"], json!({ "mars": [1] }));
    assert_eq!(record.body(), text.as_bytes());
    assert_eq!(record.routing_key(), "mail.teleported");
}

#[rstest]
#[case::nothing("")]
#[case::no_object("[]")]
#[case::no_time(r#"{"transition":"done"}"#)]
#[case::no_transition(r#"{"at":"2026-06-01T09:00:00Z"}"#)]
#[case::no_json(r#"{"at":"2026-06-01T09:00:00Z","transition":"done""#)]
fn what_is_no_record_is_an_error(#[case] text: &str) {
    assert!(LifeCycleRecord::parse(text.as_bytes()).is_err());
}

#[test]
fn a_record_of_no_event_has_an_empty_first_word_and_filter_value() {
    let record = LifeCycleRecord::parse(br#"{"at":"2026-06-01T09:00:00Z","transition":"paused"}"#).expect("a record");
    assert_eq!((record.routing_key(), record.filter_value()), (".paused".to_owned(), ""));
}

#[test]
fn the_broker_filters_by_the_reference_or_else_by_the_id() {
    let record = of(&Transition::Started);
    assert_eq!((record.routing_key(), record.filter_value()), ("mail.started".to_owned(), "1234"));
    assert_eq!(LifeCycleRecord { reference: None, ..record }.filter_value(), "a1");
}

#[test]
fn a_long_reason_is_cut() {
    let reason = "é".repeat(1_000);
    let record = of(&Transition::Dropped { reason, took: TOOK });
    assert_eq!(record.reason.expect("a reason").len(), 1_000);
}

#[rstest]
#[case::whole("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", true)]
#[case::of_a_newer_version("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more", true)]
#[case::short("00-1-2-01", false)]
#[case::zero("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false)]
#[case::upper("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false)]
#[case::empty("", false)]
fn a_trace_has_an_id_of_32_digits(#[case] traceparent: &str, #[case] expected: bool) {
    assert_eq!(trace_id(traceparent).is_some(), expected);
}

/// The table in the reference has every transition, and says which `events: failures` tells.
#[test]
fn the_reference_has_every_transition() {
    let page = include_str!("../../../docs/reference/life-cycle.md");
    for name in TransitionName::ALL {
        assert_eq!(TransitionName::from(name.to_string()), *name);
        let told = if Told::Failures.takes(name) { "| yes |" } else { "| no |" };
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        assert!(row.is_some_and(|row| row.contains(told)), "{name}: {row:?}");
        assert!(Told::All.takes(name) && !Told::Off.takes(name));
    }
}

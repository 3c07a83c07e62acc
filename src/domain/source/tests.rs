use bytes::Bytes;
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::domain::{
    message::{Incoming, Properties, Value as Header},
    names::Names,
    words::{Reference, Word},
};

const TYPES: &str = "version: 1\nname: billing\ntypes: { hr-import: {}, mail: {} }\n";

fn spec(source: &str) -> SourceSpec {
    let file = format!("{TYPES}sources: {{ hr: {source} }}\n");
    let topology = crate::file::read(&file, "topology.yaml").unwrap_or_else(|error| panic!("{error}"));
    topology.sources["hr"].clone()
}

fn message(id: Option<&str>, body: &str) -> Incoming {
    let properties = Properties { message_id: id.map(str::to_owned), ..Properties::default() };
    Incoming { routing_key: "hr-changes".to_owned(), properties, body: Bytes::copy_from_slice(body.as_bytes()) }
}

fn mapped(source: &str, message: &Incoming) -> Result<Vec<Mapped>, Unmappable> {
    let name: Word = "hr".parse().expect("a word");
    map(&Names::new("billing".parse().expect("a word")), (&name, &spec(source)), 1_000, message)
}

/// The example of the documentation.
const HR: &str = "{ queue: hr-changes, timezone: Europe/Berlin, events: [ \
    { when: { /kind: terminated }, type: hr-import, reference: /employee/number, nbf: /employee/end_date, payload: / } ] }";

#[test]
fn a_message_becomes_an_event() {
    let body = r#"{"kind":"terminated","employee":{"number":"1234","end_date":"20260601"}}"#;
    let mut message = message(Some("m-1"), body);
    message.properties.correlation_id = Some("c".to_owned());
    message.properties.content_type = Some("application/vnd.hr+json".to_owned());
    message.properties.headers.insert("traceparent".to_owned(), Header::text("00-a-b-01"));
    let event = Mapped {
        rule: 1,
        id: Some("hr:m-1".to_owned()),
        event_type: "hr-import".parse().expect("a type"),
        reference: "1234".parse().ok(),
        nbf: "2026-05-31T22:00:00Z".parse().ok(),
        payload: Bytes::copy_from_slice(body.as_bytes()),
        content_type: Some("application/vnd.hr+json".to_owned()),
        correlation_id: Some("c".to_owned()),
        traceparent: Some("00-a-b-01".to_owned()),
        reason: "message: queue=hr-changes id=m-1".to_owned(),
    };
    assert_eq!(mapped(HR, &message), Ok(vec![event]));
}

#[rstest]
#[case::text("terminated", r#""terminated""#, true)]
#[case::another_text("terminated", r#""hired""#, false)]
#[case::no_text("terminated", "1", false)]
#[case::number("5", "5", true)]
#[case::the_same_number("5", "5.0", true)]
#[case::negative("-1.5", "-1.50", true)]
#[case::another_number("5", "6", false)]
#[case::a_large_number("9007199254740993", "9007199254740993", true)]
#[case::another_large_number("9007199254740993", "9007199254740992", false)]
#[case::number_as_text("\"5\"", "5", false)]
#[case::boolean("true", "true", true)]
#[case::another_boolean("false", "true", false)]
#[case::null("null", "null", true)]
#[case::not_null("null", "0", false)]
#[case::one_of_several("[hired, terminated, 5]", r#""terminated""#, true)]
#[case::none_of_several("[hired, terminated]", r#""moved""#, false)]
#[case::several_with_null("[hired, null]", "null", true)]
fn a_condition_compares_with_constants(#[case] constant: &str, #[case] value: &str, #[case] matches: bool) {
    let source = format!("{{ queue: q, events: [ {{ when: {{ /kind: {constant} }}, type: mail }} ] }}");
    let found = mapped(&source, &message(None, &format!("{{\"kind\":{value}}}")));
    assert_eq!(found.map(|events| events.len()), if matches { Ok(1) } else { Err(Unmappable::NoRule) });
}

#[test]
fn null_stands_for_an_absent_member_too() {
    let source = "{ queue: q, events: [ { when: { /a/b: null, /kind: x }, type: mail } ] }";
    assert_eq!(mapped(source, &message(None, r#"{"kind":"x"}"#)).map(|events| events.len()), Ok(1));
    assert_eq!(mapped(source, &message(None, r#"{"kind":"x","a":{"b":1}}"#)), Err(Unmappable::NoRule));
}

#[test]
fn each_rule_that_matches_makes_an_event_of_its_own() {
    let source = "{ queue: q, id: /id, events: [ { when: { /a: 1 }, type: mail }, { type: hr-import, \
                  reference: { const: all }, payload: /part }, { when: { /a: 2 }, type: mail } ] }";
    let events = mapped(source, &message(Some("ignored"), r#"{"id":77,"a":1,"part":{"b":[1.50]}}"#)).expect("events");
    let told: Vec<_> =
        events.iter().map(|event| (event.rule, event.id.as_deref(), event.event_type.as_str())).collect();
    assert_eq!(told, [(1, Some("hr:77:1"), "mail"), (2, Some("hr:77:2"), "hr-import")]);
    assert_eq!(events[1].reference.as_ref().map(Reference::as_str), Some("all"));
    assert_eq!(events[1].payload, r#"{"b":[1.50]}"#);
}

#[rstest]
#[case::not_json(HR, "{]", "the body is not JSON: key must be a string at line 1 column 2")]
#[case::empty(HR, "", "the body is not JSON: it is empty")]
#[case::byte_order_mark(HR, "\u{feff}{}", "the body is not JSON: it begins with a byte order mark")]
#[case::no_rule(HR, r#"{"kind":"hired"}"#, "no rule matches")]
#[case::no_object(HR, "[1]", "no rule matches")]
#[case::no_reference(HR, r#"{"kind":"terminated"}"#, "rule 1: `reference` /employee/number points to nothing")]
#[case::null_reference(
    HR,
    r#"{"kind":"terminated","employee":{"number":null}}"#,
    "rule 1: `reference` /employee/number points to nothing"
)]
#[case::reference_is_a_boolean(
    HR,
    r#"{"kind":"terminated","employee":{"number":true}}"#,
    "rule 1: `reference` /employee/number is a boolean; it takes a text or a whole number"
)]
#[case::reference_is_a_fraction(
    HR,
    r#"{"kind":"terminated","employee":{"number":1.5}}"#,
    "rule 1: `reference` /employee/number is a number that is not whole, or has more than 64 bits; it takes a text or a whole number"
)]
#[case::reference_is_empty(
    HR,
    r#"{"kind":"terminated","employee":{"number":""}}"#,
    "rule 1: `reference` /employee/number: a reference has 1 to 255 bytes, this one has 0"
)]
#[case::no_date(
    HR,
    r#"{"kind":"terminated","employee":{"number":"1","end_date":"soon"}}"#,
    "rule 1: `nbf` /employee/end_date is no date: \"soon\""
)]
#[case::no_payload(
    "{ queue: q, events: [ { type: mail, payload: /part } ] }",
    "{}",
    "rule 1: `payload` /part points to nothing"
)]
#[case::no_id("{ queue: q, id: /id, events: [ { type: mail } ] }", "{}", "`id` /id points to nothing")]
#[case::empty_id(
    "{ queue: q, id: /id, events: [ { type: mail } ] }",
    r#"{"id":""}"#,
    "`id` /id is an empty text; the message must have its id there, or the `id` of the source must point to another field"
)]
fn a_message_that_cannot_be_mapped_has_a_reason(#[case] source: &str, #[case] body: &str, #[case] reason: &str) {
    let unmappable = mapped(source, &message(Some("m"), body)).expect_err("no event");
    assert_eq!(unmappable.to_string(), reason);
}

#[test]
fn a_rule_that_fails_leaves_no_event_of_another() {
    let source = "{ queue: q, events: [ { type: mail }, { type: hr-import, reference: /nothing } ] }";
    assert!(mapped(source, &message(None, "{}")).is_err());
}

#[test]
fn a_payload_above_the_limit_is_refused() {
    let source = "{ queue: q, events: [ { type: mail } ] }";
    let unmappable = mapped(source, &message(None, &"x".repeat(1_001))).expect_err("too large");
    assert_eq!(unmappable.to_string(), "rule 1: `payload` / has 1001 bytes, more than max-payload (1000)");
}

#[test]
fn a_message_that_no_rule_matches_may_be_dropped() {
    let source = "{ queue: q, unmatched: drop, events: [ { when: { /a: 1 }, type: mail } ] }";
    assert_eq!(mapped(source, &message(None, "{}")), Ok(Vec::new()));
}

#[test]
fn a_body_that_no_rule_points_into_may_be_anything() {
    let source = "{ queue: q, events: [ { type: mail, reference: { const: all } } ] }";
    let events = mapped(source, &message(None, "not JSON")).expect("an event");
    assert_eq!((events[0].id.as_deref(), &*events[0].payload), (None, b"not JSON".as_slice()));
}

#[test]
fn a_whole_number_is_a_reference_and_an_id() {
    let source = "{ queue: q, id: /id, events: [ { type: mail, reference: /employee } ] }";
    let events = mapped(source, &message(None, r#"{"id":18446744073709551615,"employee":-7}"#)).expect("an event");
    assert_eq!(events[0].id.as_deref(), Some("hr:18446744073709551615"));
    assert_eq!(events[0].reference.as_ref().map(Reference::as_str), Some("-7"));
}

#[test]
fn a_long_id_is_hashed_and_stays_the_same() {
    let name: Word = "hr".parse().expect("a word");
    let (long, other) = ("x".repeat(300), "y".repeat(300));
    let id = id_of(&name, &long, Some(2));
    assert_eq!((id.len(), &id), (3 + 32 + 2, &id_of(&name, &long, Some(2))));
    assert_ne!(id, id_of(&name, &other, Some(2)));
    assert_eq!(id_of(&name, &"x".repeat(250), None).len(), 253);
}

proptest! {
    /// Any message becomes events that can be published, or has a reason.
    #[test]
    fn any_message_becomes_events_or_has_a_reason(
        id in proptest::option::of(".{0,300}"),
        kind in prop_oneof![Just("\"terminated\"".to_owned()), any::<i32>().prop_map(|n| n.to_string()), Just("null".to_owned())],
        number in prop_oneof![any::<i64>().prop_map(|n| n.to_string()), ".{0,10}".prop_map(|text| serde_json::json!(text).to_string())],
        date in prop_oneof![any::<u64>().prop_map(|n| n.to_string()), "[0-9T:Z+-]{0,25}".prop_map(|text| format!("\"{text}\""))],
        garbage in proptest::collection::vec(any::<u8>(), 0..60),
        is_garbage in proptest::bool::weighted(0.2),
    ) {
        let body = format!("{{\"kind\":{kind},\"employee\":{{\"number\":{number},\"end_date\":{date}}}}}");
        let mut message = message(id.as_deref(), &body);
        if is_garbage {
            message.body = garbage.into();
        }
        match mapped(HR, &message) {
            Ok(events) => for event in events {
                prop_assert!(event.id.is_none_or(|id| (1..=255).contains(&id.len())));
                prop_assert_eq!(&event.payload, &message.body);
            },
            Err(unmappable) => prop_assert!(!unmappable.to_string().is_empty()),
        }
    }
}

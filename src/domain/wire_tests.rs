use rstest::rstest;

use super::*;

fn noon() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().expect("a time")
}

fn word(text: &str) -> EventType {
    text.parse().expect("a word")
}

#[test]
fn an_event_is_read_as_it_is_written() {
    let full = Incoming {
        routing_key: "import.5s".into(),
        properties: Properties {
            message_id: Some("id-1".into()),
            kind: Some("import".into()),
            timestamp: Some(1_780_000_000),
            correlation_id: Some("c".into()),
            content_type: Some("text/plain".into()),
            headers: [
                ("reference", Value::text("1234")),
                ("created_at", Value::text("2026-05-28T20:26:40.123Z")),
                ("nbf", Value::text("2026-05-28T20:26:45.000Z")),
                ("attempts", Value::I64(2)),
                ("busy", Value::I64(1)),
                ("reason", Value::text("why")),
                ("slot", Value::text("i")),
                ("version", Value::I64(1_780_000_000_000_000)),
                ("generation", Value::I64(3)),
                ("traceparent", Value::text("00-1-2-01")),
                ("x-foreign", Value::F32(1.5)),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            ..Properties::default()
        },
        body: "payload".into(),
    };
    let event = decode(&word("import"), full.clone(), noon(), String::new).expect("an event");
    assert_eq!(event.stamp.slot, Slot::Immediate);
    assert_eq!((event.attempts, event.busy, event.stamp.generation), (2, 1, 3));
    assert_eq!(encode(&event), full.properties);
    assert_eq!(event.payload, full.body);
}

#[test]
fn a_message_with_a_key_and_a_body_alone_is_an_event() {
    let bare = Incoming { routing_key: "mail.now".into(), properties: Properties::default(), body: "x".into() };
    let event = decode(&word("mail"), bare, noon(), || "fresh".into()).expect("an event");
    assert_eq!((event.id.as_str(), event.created_at, event.attempts), ("fresh", noon(), 0));
    assert_eq!(event.stamp, Stamp::alone("fresh", 0));
}

#[rstest]
#[case::number_as_text("attempts", Value::text("1"))]
#[case::negative("generation", Value::I64(-1))]
#[case::no_time("nbf", Value::text("tomorrow"))]
#[case::text_as_number("reference", Value::I64(1234))]
#[case::no_reference("reference", Value::text(""))]
#[case::no_text("reason", Value::Text(vec![0xff]))]
#[case::no_slot("slot", Value::text("z"))]
#[case::boolean("version", Value::Bool(true))]
fn a_header_of_the_wrong_type_is_poison(#[case] name: &str, #[case] value: Value) {
    let headers = [(name.to_owned(), value)].into();
    let incoming = Incoming {
        routing_key: "mail.now".into(),
        properties: Properties { headers, ..Properties::default() },
        body: "{}".into(),
    };
    let poisoned = decode(&word("mail"), incoming, noon(), String::new);
    let (poison, _) = *poisoned.expect_err("no event");
    assert!(poison.to_string().starts_with("poison: "), "{poison}");
}

#[test]
fn a_long_reason_is_cut_between_two_characters() {
    let reason = "ä".repeat(800);
    assert_eq!(cut_reason(&reason).len(), 1_000);
    assert_eq!(cut_reason(&format!("x{reason}")).len(), 999);
}

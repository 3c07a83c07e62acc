use std::collections::BTreeMap;

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
                ("expires", Value::text("2026-05-28T20:36:45.000Z")),
                ("attempts", Value::I64(2)),
                ("busy", Value::I64(1)),
                ("reason", Value::text("busy: times=1 its reference was taken, or could not be read; why")),
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
    assert_eq!((&event.stamp.slot, event.reason.as_deref()), (&DedupSlot::Immediate, Some("why")));
    assert_eq!((event.attempts, event.busy, event.stamp.generation), (2, 1, 3));
    assert_eq!(encode(&event), full.properties);
    assert_eq!(event.payload, full.body);
}

#[test]
fn a_message_with_a_key_and_a_body_alone_is_an_event() {
    let bare = Incoming { routing_key: "mail.now".into(), properties: Properties::default(), body: "x".into() };
    let event = decode(&word("mail"), bare, noon(), || "fresh".into()).expect("an event");
    assert_eq!((event.id.as_str(), event.created_at, event.attempts), ("fresh", noon(), 0));
    assert_eq!(event.stamp, CopyVersion::uncontested("fresh", 0));
}

/// It is noon.
#[rstest]
#[case::at_its_expiry(0, &[], 0, true)]
#[case::long_after_it(-86_400, &[], 0, true)]
#[case::before_it(1, &[], 0, false)]
#[case::a_start_was_not_settled(-1, &[], 1, false)]
#[case::a_copy_of_a_started_one(-1, &[("generation", Value::I64(1))], 0, false)]
#[case::a_failure(-1, &[("attempts", Value::I64(1))], 0, false)]
#[case::a_crash(-1, &[("crashes", Value::I64(1))], 0, false)]
#[case::put_off_as_busy(-1, &[("busy", Value::I64(3))], 0, true)]
#[case::of_a_reference(-1, &[("reference", Value::text("1"))], 0, true)]
#[case::it_competes(-1, &[("reference", Value::text("1")), ("slot", Value::text("i")), ("version", Value::I64(5))], 0, false)]
fn an_event_expires_unless_it_was_started(
    #[case] seconds: i64,
    #[case] headers: &[(&str, Value)],
    #[case] crashes: u32,
    #[case] expected: bool,
) {
    let expires = noon() + jiff::SignedDuration::from_secs(seconds);
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let expiry = ("expires".to_owned(), Value::text(&millis_text(expires)));
    let headers = headers.chain([expiry]).collect();
    let properties = Properties { headers, ..Properties::default() };
    let message = Incoming { routing_key: "mail.now".into(), properties, body: "x".into() };
    let event = decode(&word("mail"), message, noon(), || "fresh".into()).expect("an event");
    assert_eq!(event.expired(crashes, noon()), expected.then_some(expires));
}

fn death(reason: &str) -> Value {
    Value::Table([("reason".to_owned(), Value::text(reason))].into())
}

#[rstest]
#[case::at_once("mail.now", &[], None, false)]
#[case::by_a_timer("mail.5m", &["expired"], None, false)]
#[case::by_the_ladder("mail.250ms-4.1.0.1.0", &["expired", "expired"], None, false)]
#[case::under_a_former_name("letter.now", &[], None, false)]
#[case::retried("mail.1m", &["expired"], Some("retry: attempt=1 failed_at=x error=\"y\""), false)]
#[case::by_its_own_key("mail.dead-letter", &[], Some("given up: attempt=6"), true)]
#[case::straight_to_its_queue("t.processor.mail", &[], None, true)]
#[case::rejected("mail.now", &["rejected"], None, true)]
#[case::returned_too_often("mail.5m", &["delivery_limit", "expired"], None, true)]
#[case::busy_meanwhile("mail.250ms", &["expired"], Some("dead-letter: no such employee"), true)]
fn an_event_that_a_person_sent_is_recognised(
    #[case] key: &str,
    #[case] deaths: &[&str],
    #[case] reason: Option<&str>,
    #[case] by_hand: bool,
) {
    let mut headers = Headers::new();
    if !deaths.is_empty() {
        headers.insert("x-death".into(), Value::Array(deaths.iter().map(|reason| death(reason)).collect()));
    }
    if let Some(reason) = reason {
        headers.insert("reason".into(), Value::text(reason));
    }
    let properties = Properties { headers, ..Properties::default() };
    let incoming = Incoming { routing_key: key.into(), properties, body: "{}".into() };
    let event = decode(&word("mail"), incoming, noon(), String::new).expect("an event");
    assert_eq!(event.by_hand, by_hand);
}

#[rstest]
#[case::its_own("mail.now", None, false)]
#[case::another("pay.now", None, true)]
#[case::a_property_of_ours("pay.now", Some("pay"), true)]
#[case::a_property_of_its_publisher("pay.now", Some("com.example.Pay"), true)]
#[case::it_says_that_it_belongs_here("pay.now", Some("mail"), false)]
#[case::no_type_of_the_file("letter.now", Some("letter"), false)]
#[case::moved_by_hand("pay.processor.mail", None, false)]
#[case::moved_by_hand_to_dead_letter("pay.dead-letter.mail", None, false)]
fn an_event_of_another_type_is_known_by_its_key(
    #[case] key: &str,
    #[case] kind: Option<&str>,
    #[case] misrouted: bool,
) {
    let properties = Properties { kind: kind.map(str::to_owned), ..Properties::default() };
    let incoming = Incoming { routing_key: key.into(), properties, body: "{}".into() };
    let types = BTreeMap::from([(word("mail"), 1), (word("pay"), 2)]);
    let found = super::misrouted(&word("mail"), &incoming, &types);
    assert_eq!(found.map(ToString::to_string).as_deref(), misrouted.then_some("pay"));
}

#[rstest]
#[case::number_as_text("attempts", Value::text("1"))]
#[case::negative("generation", Value::I64(-1))]
#[case::no_time("nbf", Value::text("tomorrow"))]
#[case::no_expiry("expires", Value::I64(60))]
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

#[rstest]
#[case(1 << 53)]
#[case(i64::MAX)]
fn the_next_copy_of_any_generation_can_be_read(#[case] generation: i64) {
    let headers = [("generation".to_owned(), Value::I64(generation))].into();
    let mut properties = Properties { headers, ..Properties::default() };
    for _ in 0..3 {
        let incoming = Incoming { routing_key: "mail.now".into(), properties, body: "{}".into() };
        let mut event = decode(&word("mail"), incoming, noon(), || "fresh".into()).expect("an event");
        event.stamp = event.stamp.next();
        properties = encode(&event);
    }
}

#[rstest]
#[case::never_failed(None, None, "2026-06-01T12:00:00.000Z poison", "2026-06-01T12:00:00.000Z poison")]
#[case::failed_before(Some("first"), Some("last"), "first", "2026-06-01T12:00:00.000Z poison")]
fn poison_records_its_first_and_last_failure(
    #[case] first: Option<&str>,
    #[case] last: Option<&str>,
    #[case] expected_first: &str,
    #[case] expected_last: &str,
) {
    let before = [("first_failure", first), ("last_failure", last)];
    let mut headers: Headers =
        before.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::text(text?)))).collect();
    headers.insert("attempts".into(), Value::text("many"));
    let buried = bury(headers);
    let text = |name: &str| buried.headers[name].as_str().expect("text").to_owned();
    assert!(text("first_failure").starts_with(expected_first), "{buried:?}");
    assert!(text("last_failure").starts_with(expected_last), "{buried:?}");
}

#[rstest]
#[case("first_failure")]
#[case("last_failure")]
fn a_failure_that_is_poison_stays_as_it_came(#[case] name: &str) {
    let buried = bury([(name.to_owned(), Value::I64(7))].into());
    assert_eq!(buried.headers[name], Value::I64(7));
    let failures = ["first_failure", "last_failure"].map(|name| buried.headers[name].as_str().is_some());
    assert_eq!(failures, [name != "first_failure", name != "last_failure"]);
}

fn bury(headers: Headers) -> Properties {
    let incoming = Incoming {
        routing_key: "mail.now".into(),
        properties: Properties { headers, ..Properties::default() },
        body: "{}".into(),
    };
    let (poison, incoming) = *decode(&word("mail"), incoming, noon(), String::new).expect_err("no event");
    encode_buried(incoming.properties, &poison.to_string(), noon(), String::new)
}

#[test]
fn a_copy_of_a_message_with_all_examples_has_them_again() {
    let value = |field: &fields::Field| match field.example.parse() {
        Ok(number) if field.format.starts_with("whole number") => Value::I64(number),
        _ => Value::text(field.example),
    };
    let headers: Headers = fields::FIELDS
        .iter()
        .filter(|field| field.place == fields::Place::Header)
        .map(|field| (field.name.to_owned(), value(field)))
        .collect();
    let example = |name: &str| fields::FIELDS.iter().find(|field| field.name == name).expect("a row").example;
    let properties = Properties {
        headers,
        message_id: Some(example("message_id").to_owned()),
        kind: Some(example("type").to_owned()),
        timestamp: Some(example("timestamp").parse().expect("seconds")),
        content_type: Some(example("content_type").to_owned()),
        correlation_id: Some(example("correlation_id").to_owned()),
        ..Properties::default()
    };
    let message =
        Incoming { routing_key: "hr-import.now".to_owned(), properties: properties.clone(), body: Bytes::new() };
    let event_type = example("type").parse().expect("a type");
    let event = decode(&event_type, message, Timestamp::UNIX_EPOCH, || panic!("it has an id")).expect("an event");
    let copy = encode(&event);
    for (name, value) in &properties.headers {
        // The count of waits becomes a part of the reason, and is read back from there.
        if name != header::REASON {
            assert_eq!(copy.headers.get(name), Some(value), "{name}");
        }
    }
    assert_eq!(copy.without_headers(), properties.without_headers());
}

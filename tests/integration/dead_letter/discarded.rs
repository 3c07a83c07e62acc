//! Discarding letters.

use std::collections::BTreeMap;

use hatchery::Outcome;
use lapin::{
    BasicProperties,
    message::BasicGetMessage,
    types::{AMQPValue, ByteArray, DecimalValue, FieldArray, FieldTable, ShortString},
};

use super::{TYPES, numbered, put};
use crate::support::{amqp::long, broker::eventually, declared::Declared, process::Place, workers::Working};

#[tokio::test]
#[ignore = "discards and publishes hundreds of letters; scripts/test --all runs it"]
async fn discarded_letters_are_in_the_file_and_can_be_published_from_it() {
    let declared = Declared::new(TYPES).await;
    put(&declared, "mail", 600).await;
    let (hatchery, place) = (declared.connect().await, Place::new(&declared));
    let dry = place.letters(0, &["discard"]).await;
    assert!(dry.stdout.ends_with("Dry run: would discard 600 letters. --save FILE --yes does it.\n"), "{dry:?}");
    let usage = place.letters(2, &["discard", "--yes"]).await;
    assert!(usage.stderr.contains("--yes needs --save"), "{usage:?}");
    assert_eq!(place.letter_ids(&[]).await.len(), 600);
    place.letters(0, &["discard", "--yes", "--save", "letters.ndjson"]).await;
    assert_eq!(place.letter_ids(&[]).await, [""; 0]);
    let noted = |line: &String| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["discarded"]["id"].as_str().unwrap().to_owned()
    };
    assert_eq!(place.lines("letters.ndjson").iter().map(noted).collect::<Vec<_>>(), numbered(600).collect::<Vec<_>>());
    place.run(&mut place.command(&["publish", "--batch", "letters.ndjson"])).await.expect(0);
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(600).await;
    let mut payloads = worker.runs.payloads();
    worker.stop().await;
    payloads.sort();
    assert_eq!(payloads, numbered(600).collect::<Vec<_>>());
}

/// Returns a header value of each kind.
fn kinds() -> Vec<AMQPValue> {
    let mut table = FieldTable::default();
    table.insert("inner".into(), AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::Void, long("x")])));
    vec![
        AMQPValue::Boolean(true),
        AMQPValue::ShortShortInt(-7),
        AMQPValue::ShortShortUInt(200),
        AMQPValue::ShortInt(-300),
        AMQPValue::ShortUInt(60_000),
        AMQPValue::LongInt(-70_000),
        AMQPValue::LongUInt(4_000_000_000),
        AMQPValue::LongLongInt(i64::MIN),
        AMQPValue::Float(0.1),
        AMQPValue::Double(1e300),
        AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 314 }),
        long("größe"),
        long([0xff, 0x00, 0xfe]),
        AMQPValue::Timestamp(1_780_000_000),
        AMQPValue::FieldTable(table.clone()),
        AMQPValue::FieldArray(FieldArray::from(vec![AMQPValue::FieldTable(table), AMQPValue::Void])),
        AMQPValue::ByteArray(ByteArray::from(vec![1, 2, 255])),
        AMQPValue::Void,
    ]
}

/// The header that tells the letters apart.
const NUMBER: &str = "x-number";

/// Headers named like those of hatchery, with values that hatchery does not write. They are not kept.
const LIKE_OURS: [&str; 4] = ["reference", "attempts", "nbf", "created_at"];

/// Headers that every event of hatchery has.
const ADDED: [&str; 4] = ["created_at", "attempts", "slot", "generation"];

/// Returns the body of a message, and properties of which the bits of `n` choose some. `user` is who publishes it.
fn foreign(n: usize, user: &str) -> (BasicProperties, &'static [u8]) {
    let bodies: [&[u8]; 8] = [
        b"{\"a\": 1.0,\n \"b\": [1,\r\n2]}\n",
        b"{\"a\":12345678901234567890}",
        b" {} ",
        b"",
        &[0xff, 0x00, b'\n', 0xfe],
        b"\xef\xbb\xbf{}",
        "größe\n".as_bytes(),
        b"null",
    ];
    let has = |bit: usize| (n >> bit) & 1 == 1;
    let mut headers = FieldTable::default();
    headers.insert(NUMBER.into(), AMQPValue::LongLongInt(n.try_into().unwrap()));
    for (kind, value) in kinds().into_iter().enumerate() {
        if (n + kind).is_multiple_of(3) || has(kind % 10) {
            headers.insert(format!("x-kind-{kind}").into(), value);
        }
    }
    let mut properties = BasicProperties::default().with_message_id(format!("n{n:05}").into());
    if has(0) {
        properties = properties.with_content_type("application/json".into());
    } else if has(1) {
        properties = properties.with_content_type("text/plain; charset=latin1".into());
    }
    if has(2) {
        properties = properties.with_reply_to("answers".into()).with_correlation_id("c-1".into());
    }
    if has(3) {
        properties = properties.with_content_encoding("gzip".into()).with_app_id("shop".into());
    }
    if has(4) {
        properties = properties.with_type("com.example.Order".into()).with_cluster_id("c".into());
    }
    if has(5) {
        properties = properties.with_delivery_mode(1).with_priority(3).with_expiration("100000000".into());
    }
    if has(6) {
        properties = properties.with_user_id(user.into());
        let copies = vec![long("nobody.copy")];
        headers.insert("CC".into(), AMQPValue::FieldArray(FieldArray::from(copies)));
    }
    if has(7) {
        for (name, value) in
            LIKE_OURS.into_iter().zip([AMQPValue::LongInt(7), long("many"), long("soon"), AMQPValue::Void])
        {
            headers.insert(name.into(), value);
        }
    } else if has(8) {
        headers.insert("reference".into(), long("1234"));
    }
    let properties = properties.with_headers(headers);
    (properties.with_timestamp(1_780_000_000 + u64::try_from(n).unwrap()), bodies[n / 2 % bodies.len()])
}

/// The properties that a letter keeps.
fn kept(properties: &BasicProperties) -> [Option<String>; 8] {
    let text = |text: &Option<ShortString>| text.as_ref().map(ToString::to_string);
    [
        text(properties.content_type()),
        text(properties.content_encoding()),
        text(properties.correlation_id()),
        text(properties.reply_to()),
        text(properties.kind()),
        text(properties.app_id()),
        text(properties.cluster_id()),
        properties.timestamp().map(|seconds| seconds.to_string()),
    ]
}

fn all_headers(message: &BasicGetMessage) -> BTreeMap<String, AMQPValue> {
    let headers = message.properties.headers().iter().flat_map(FieldTable::inner);
    headers.map(|(name, value)| (name.to_string(), value.clone())).collect()
}

#[tokio::test]
#[ignore = "publishes 1,000 messages four times; scripts/test --all runs it"]
async fn discarded_letters_of_other_clients_are_published_as_they_were() {
    const LETTERS: usize = 1_000;
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (declared.amqp().await, Place::new(&declared));
    let mut expected = BTreeMap::new();
    for n in 0..LETTERS {
        let (properties, body) = foreign(n, &declared.host.name);
        // As a letter of `import` it is what other clients would read.
        amqp.publish("t.dead-letter", "import.dead-letter", properties.clone(), body).await;
        let letter = amqp.take(&declared.dead_letters("import")).await;
        let event_type = ["plain", "mail"][n / 3 % 2];
        if n.is_multiple_of(5) {
            amqp.publish("t.scheduler", &format!("{event_type}.now"), properties, body).await;
            amqp.reject(&declared.processing(event_type)).await;
        } else {
            amqp.publish("t.dead-letter", &format!("{event_type}.dead-letter"), properties, body).await;
        }
        let mut headers = all_headers(&letter);
        let is_kept = |name: &String, value: &AMQPValue| {
            let is_reference = name == "reference" && matches!(value, AMQPValue::LongString(_));
            // RabbitMQ would route a copy by `CC`.
            is_reference || (name != "CC" && !LIKE_OURS.contains(&name.as_str()))
        };
        headers.retain(|name, value| is_kept(name, value));
        let mut properties = kept(&letter.properties);
        // A message without a type gets ours.
        properties[4].get_or_insert_with(|| event_type.to_owned());
        expected.insert(n, (properties, headers, letter.data.clone(), event_type));
    }
    let queues = ["plain", "mail"].map(|event_type| declared.dead_letters(event_type));
    eventually("RabbitMQ has dead-lettered what was rejected", async || {
        let ready: u32 = amqp.filled(&queues).await.values().sum();
        (ready == u32::try_from(LETTERS).unwrap()).then_some(())
    })
    .await;
    place.letters(0, &["discard", "--yes", "--save", "letters.ndjson"]).await;
    assert!(amqp.filled(&queues).await.is_empty());
    place.run(&mut place.command(&["publish", "--batch", "letters.ndjson"])).await.expect(0);
    for event_type in ["plain", "mail"] {
        while let Some(message) = amqp.get(&declared.processing(event_type)).await {
            // What RabbitMQ adds to a message that it dead-letters is not among them.
            let mut headers = all_headers(&message);
            let Some(AMQPValue::LongLongInt(n)) = headers.get(NUMBER) else { panic!("{message:?}") };
            let n = usize::try_from(*n).unwrap();
            let expected = expected.remove(&n).unwrap_or_else(|| panic!("letter {n} came twice"));
            for name in ADDED {
                assert!(headers.remove(name).is_some(), "letter {n} has no {name}");
            }
            assert_eq!((kept(&message.properties), headers, message.data.clone(), event_type), expected, "letter {n}");
            let properties = &message.properties;
            assert_eq!(*properties.delivery_mode(), Some(2), "letter {n}");
            assert_eq!((properties.priority(), properties.expiration(), properties.user_id()), (&None, &None, &None));
            assert!(properties.message_id().as_ref().is_some_and(|id| id.as_str() != format!("n{n:05}")), "letter {n}");
        }
    }
    assert!(expected.is_empty(), "{:?} are missing", expected.keys());
}

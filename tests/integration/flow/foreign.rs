//! Messages of foreign publishers, which do not use the library.

use std::time::Duration;

use hatchery::{NewEvent, Outcome};
use jiff::Timestamp;
use lapin::{BasicProperties, types::AMQPValue};
use rstest::rstest;
use serde_json::json;

use crate::support::{
    amqp::{header, headers, long, shown},
    broker::eventually,
    declared::{Declared, publish},
    logs::Logs,
    wire::{Wire, long as long_bytes, short},
    workers::Working,
};

#[rstest]
#[case::number_as_text("attempts", long("1"))]
#[case::negative("generation", AMQPValue::LongLongInt(-1))]
#[case::too_large("attempts", AMQPValue::LongLongInt(i64::MAX))]
#[case::no_time("nbf", long("tomorrow"))]
#[case::a_time_of_another_kind("nbf", AMQPValue::Timestamp(1))]
#[case::text_as_number("reference", AMQPValue::LongInt(1234))]
#[case::no_reference("reference", long(""))]
#[case::control_characters("reference", long("a\nb"))]
#[case::no_text("reason", long([0xff, 0xfe]))]
#[case::no_slot("slot", long("z"))]
#[case::boolean("version", AMQPValue::Boolean(true))]
#[case::table("traceparent", AMQPValue::FieldTable(lapin::types::FieldTable::default()))]
#[tokio::test]
async fn a_message_that_is_no_event_is_dead_lettered_unchanged(#[case] name: &str, #[case] value: AMQPValue) {
    let declared = Declared::new("types: { mail: {} }").await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    let properties = headers(&[(name, value.clone()), ("x-foreign", long([0xff]))])
        .with_message_id("their-id".into())
        .with_content_type("text/plain".into())
        .with_app_id("a".into());
    amqp.publish("t.scheduler", "mail.now", properties.clone(), &[0xff]).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    assert_eq!(letter.data, [0xff]);
    assert_eq!(letter.properties.message_id(), properties.message_id());
    assert_eq!(letter.properties.content_type(), properties.content_type());
    assert_eq!(letter.properties.app_id(), properties.app_id());
    assert_eq!(header(&letter, "x-foreign"), Some(&long([0xff])));
    if name != "reason" {
        assert_eq!(header(&letter, name), Some(&value));
    }
    let reason = shown(&letter, "reason").unwrap();
    assert!(reason.starts_with(&format!("poison: the header `{name}` should be ")), "{reason}");
    for failure in ["first_failure", "last_failure"] {
        let failure = shown(&letter, failure).unwrap();
        let (when, what) = failure.split_once(' ').unwrap();
        assert!(when.parse::<Timestamp>().is_ok() && what == reason, "{failure}");
    }
    let summary = worker.stop().await;
    assert_eq!((summary.poisoned, summary.delivered), (1, 1));
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_message_with_only_a_key_and_a_body_is_an_event() {
    let declared = Declared::new("types: { mail: { retry: { delays: [50ms] } } }").await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    amqp.publish("t.scheduler", "mail.now", BasicProperties::default(), b"any bytes").await;
    let worker = Working::start(&hatchery, "mail", |event| match event.attempts {
        0 => Outcome::Retry { reason: "once more".into(), after: None },
        _ => Outcome::Done,
    });
    let runs = worker.runs.reach(2).await;
    assert_eq!(&runs[0].event.payload[..], b"any bytes");
    assert_eq!((&runs[0].event.reference, &runs[0].event.content_type), (&None, &None));
    // The worker gave the message an id, which its retry carries.
    assert_eq!(runs[0].event.id, runs[1].event.id);
    assert_eq!(worker.stop().await.done, 1);
}

#[tokio::test]
async fn a_foreign_message_waits_as_its_routing_key_says() {
    let declared = Declared::new("hatcheries: [200ms]\ntypes: { mail: {} }").await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    // The ladder key has bits 0 and 3 set: nine steps of 50 ms.
    let waits = [("mail.200ms", 200), ("mail.50ms-5.1.0.0.1.0", 450)];
    let mut began = Vec::new();
    for (key, _) in waits {
        began.push(Timestamp::now());
        amqp.publish("t.scheduler", key, BasicProperties::default(), key.as_bytes()).await;
    }
    let runs = worker.runs.reach(2).await;
    for ((key, wait), began) in waits.into_iter().zip(began) {
        let run = runs.iter().find(|run| run.event.payload == key).unwrap();
        let waited = run.at.duration_since(began).as_millis();
        assert!(waited >= wait, "{key}: {waited} ms");
    }
    assert_eq!(worker.stop().await.done, 2);
}

/// A message with a shorter `expiration` leaves its hatchery early. The header `nbf` shows that it is not due.
#[tokio::test]
async fn an_expiration_does_not_bring_an_event_before_its_date() {
    let declared = Declared::new("hatcheries: [1h]\ntypes: { mail: {} }").await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let nbf = Timestamp::now() + std::time::Duration::from_secs(6);
    let properties = headers(&[("nbf", long(format!("{nbf:.3}")))]).with_expiration("50".into());
    amqp.publish("t.scheduler", "mail.1h", properties, b"dated").await;
    let run = worker.runs.reach(1).await.remove(0);
    assert!(run.at >= run.event.nbf.unwrap(), "{run:?}");
    let summary = worker.stop().await;
    assert!(
        summary.done == 1 && summary.delivered > 1,
        "the event did not come early, or was not sent back: {summary:?}"
    );
}

#[tokio::test]
async fn a_message_that_expires_in_the_processing_queue_is_a_dead_letter() {
    let declared = Declared::new("types: { mail: {} }").await;
    let amqp = declared.amqp().await;
    amqp.publish("t.scheduler", "mail.now", BasicProperties::default().with_expiration("50".into()), b"body").await;
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    assert_eq!((&letter.data[..], letter.properties.expiration()), (&b"body"[..], &None));
}

/// A copy with an `expiration` would expire in a queue without a consumer, such as a dead-letter queue.
#[tokio::test]
async fn copies_do_not_carry_the_expiration_of_their_original() {
    let declared = Declared::new("types: { mail: { retry: { delays: [50ms], max-attempts: 2 } } }").await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    let never = |headers: BasicProperties| headers.with_expiration("600000".into());
    amqp.publish("t.scheduler", "mail.now", never(BasicProperties::default()), b"body").await;
    amqp.publish("t.scheduler", "mail.now", never(headers(&[("attempts", long("x"))])), b"poison").await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Retry { reason: "no".into(), after: None });
    for _ in 0..2 {
        let letter = amqp.take(&declared.dead_letters("mail")).await;
        assert_eq!(letter.properties.expiration(), &None);
    }
    let summary = worker.stop().await;
    assert_eq!((summary.retried, summary.dead_lettered, summary.poisoned), (1, 1, 1));
}

#[rstest]
#[case::unknown_type("post.now")]
#[case::unknown_delay("mail.17s")]
#[case::unknown_ladder("mail.1s-2.0.1")]
#[case::no_route("mail")]
#[case::nothing("")]
#[tokio::test]
async fn a_message_with_an_unknown_routing_key_is_kept_in_the_unrouted_queue(#[case] key: &str) {
    let declared = Declared::new("types: { mail: {} }").await;
    let amqp = declared.amqp().await;
    amqp.publish("t.scheduler", key, BasicProperties::default(), b"body").await;
    let kept = amqp.take("t.unrouted").await;
    assert_eq!((kept.routing_key.as_str(), &kept.data[..]), (key, &b"body"[..]));
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_forged_version_hides_no_other_event() {
    let declared = Declared::new("types: { import: { coalesce: latest } }").await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    let forged = [("reference", long("1234")), ("slot", long("i")), ("version", AMQPValue::LongLongInt(1 << 60))];
    amqp.publish("t.scheduler", "import.now", headers(&forged), b"forged").await;
    let worker = Working::start(&hatchery, "import", |_| Outcome::Done);
    worker.runs.reach(1).await;
    let event = hatchery::NewEvent::new("import", "real").reference("1234");
    hatchery.publisher().publish(event).await.unwrap();
    worker.runs.reach(2).await;
    assert_eq!(worker.runs.payloads(), ["forged", "real"]);
    worker.stop().await;
}

/// The register tells generations up to 2^32 - 1 apart. No copy that hatchery makes comes near that.
#[rstest]
#[case::the_last_that_is_told_from_the_next((1 << 32) - 1)]
#[case::the_one_before((1 << 32) - 2)]
#[case::beyond(1 << 53)]
#[tokio::test]
async fn an_event_with_a_huge_generation_fails_without_counting_as_a_crash(#[case] generation: i64) {
    let delays = "retry: { delays: [50ms], max-attempts: 9 }";
    let declared = Declared::new(&format!("types: {{ mail: {{ crash-limit: 3, {delays} }} }}")).await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    let properties = headers(&[("generation", AMQPValue::LongLongInt(generation))]).with_message_id("their-id".into());
    amqp.publish("t.scheduler", "mail.now", properties, b"").await;
    let logs = Logs::capture();
    let worker = Working::start(&hatchery, "mail", |event| match event.attempts {
        0..5 => Outcome::Retry { reason: "not yet".into(), after: None },
        _ => Outcome::Done,
    });
    worker.runs.reach(6).await;
    let summary = worker.stop().await;
    assert_eq!((summary.retried, summary.done, summary.dead_lettered), (5, 1, 0));
    assert_eq!(logs.with(&["died"]), Vec::<String>::new());
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_flood_of_poison_does_not_stop_a_worker() {
    let declared = Declared::new("types: { mail: {} }").await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    for n in 0..200_u32 {
        let properties = if n % 2 == 0 { headers(&[("attempts", long("x"))]) } else { BasicProperties::default() };
        amqp.publish("t.scheduler", "mail.now", properties, b"").await;
    }
    worker.runs.reach(100).await;
    eventually("100 messages are dead letters", async || {
        (amqp.ready(&declared.dead_letters("mail")).await == 100).then_some(())
    })
    .await;
    let summary = worker.stop().await;
    assert_eq!((summary.poisoned, summary.done), (100, 100));
}

/// The flag of the property `message_id`.
const MESSAGE_ID: u16 = 1 << 7;
/// The flag of the property `headers`.
const HEADERS: u16 = 1 << 13;

#[tokio::test]
#[ignore = "waits until the broker has redelivered unreadable messages 20 times; scripts/test --all runs it"]
async fn messages_that_are_not_utf_8_are_dead_lettered_and_no_others() {
    const GOOD: usize = 30;
    let declared = Declared::new("types: { mail: {}, other: {} }").await;
    // A lower delivery limit than hatchery's own of 100, to reach it soon.
    let limit = json!({ "pattern": "processor", "definition": { "delivery-limit": 20 }, "priority": 200 });
    declared.host.put("policies", "lower", &limit);
    let hatchery = declared.connect().await;
    let mut wire = Wire::connect(&declared.host.amqp());
    let header = [&short(b"caf\xe9")[..], b"t\x01"].concat();
    for n in 0..GOOD {
        match n {
            5 => wire.publish("t.processor", b"mail.now", MESSAGE_ID, &short(b"caf\xe9"), b"property"),
            15 => wire.publish("t.processor", b"mail.now", HEADERS, &long_bytes(&header), b"header"),
            25 => wire.publish("t.processor", b"mail.caf\xe9", 0, b"", b"key"),
            _ => {}
        }
        publish(&hatchery, NewEvent::new("mail", n.to_string())).await;
        publish(&hatchery, NewEvent::new("other", n.to_string())).await;
    }
    let (worker, others) = Working::start_both(&hatchery, ["mail", "other"]);
    worker.runs.reach(GOOD).await;
    others.reach(GOOD).await;
    // The broker dead-letters them, because it has counted their returns.
    let (letters, amqp) = (declared.dead_letters("mail"), declared.amqp().await);
    eventually("the three unreadable messages are dead letters", async || {
        (amqp.ready(&letters).await == 3).then_some(())
    })
    .await;
    eventually("only the dead-letter queue has messages", async || {
        (amqp.filled(&declared.queues()).await.len() == 1).then_some(())
    })
    .await;
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.dead_lettered), (2 * GOOD as u64, 0));
    let filled = async || Some(amqp.filled(&declared.queues()).await).filter(|filled| filled.len() == 1);
    assert_eq!(eventually("only the dead-letter queue has messages", filled).await, [(letters, 3)].into());
}

/// RabbitMQ 4.0 and later deliver messages of a high priority first. A copy that kept its priority would overtake all others
/// at each retry.
#[tokio::test]
#[ignore = "runs 60 events six times each; scripts/test --all runs it"]
async fn events_with_a_priority_get_no_more_retries_than_others() {
    const URGENT: usize = 10;
    const ALL: usize = 60;
    const DUE: u32 = 60;
    let logs = Logs::capture();
    let types = "types: { mail: { concurrency: 1, prefetch: 1, retry: { delays: [100ms], max-attempts: 1000 } } }";
    let declared = Declared::new(types).await;
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    for n in 0..ALL {
        let properties = BasicProperties::default().with_message_id(n.to_string().into());
        let properties = if n < URGENT { properties.with_priority(9) } else { properties };
        amqp.publish("t.scheduler", "mail.now", properties, b"{}").await;
    }
    let (worker, gate) =
        Working::gated_with(hatchery.worker(), "mail", Outcome::Retry { reason: "no luck".into(), after: None });
    // Each run takes so long that the retries wait in the queue, where a priority counts.
    for runs in 1..=6 * ALL {
        worker.runs.reach(runs).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        gate.let_through(1);
    }
    let seen = worker.runs.seen();
    let urgent = seen.iter().filter(|run| run.event.id.parse::<usize>().unwrap() < URGENT).count();
    let fair = seen.len() * URGENT / ALL;
    assert!(urgent <= fair * 3 / 2, "{urgent} of {} runs are those of {URGENT} of {ALL} events", seen.len());
    assert_eq!(logs.with(&["has a priority", "t.processor.mail"]).len(), 1);
    gate.let_through(ALL);
    worker.stop().await;
    let queue = declared.processing("mail");
    eventually("all events are due again", async || (amqp.ready(&queue).await == DUE).then_some(())).await;
    for _ in 0..ALL {
        assert_eq!(*amqp.take(&queue).await.properties.priority(), None);
    }
}

/// A binding of a stranger copies all events into the queue of one type.
#[tokio::test]
async fn an_event_of_another_type_does_not_run_and_is_not_lost() {
    let declared = Declared::new("types: { mail: {}, pay: {}, last: { on-failure: block } }").await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    for stranger in ["pay", "last"] {
        declared.host.bind("t.processor", &declared.processing(stranger), "#");
    }
    publish(&hatchery, NewEvent::new("mail", "1").id("a")).await;
    // A foreign publisher's own `type` says nothing of ours.
    let properties = BasicProperties::default().with_message_id("b".into()).with_type("com.example.Order".into());
    amqp.publish("t.scheduler", "mail.now", properties, b"2").await;
    publish(&hatchery, NewEvent::new("pay", "3").id("c")).await;
    let [mail, pay, last] = ["mail", "pay", "last"].map(|name| Working::start(&hatchery, name, |_| Outcome::Done));
    eventually("the copies are dead letters of what they are", async || {
        let letters = async |name: &str| amqp.ready(&declared.dead_letters(name)).await;
        ((letters("mail").await, letters("pay").await) == (4, 1)).then_some(())
    })
    .await;
    mail.runs.reach(2).await;
    pay.runs.reach(1).await;
    let ran = |worker: &Working| worker.runs.payloads();
    assert_eq!((ran(&mail).len(), ran(&pay), ran(&last)), (2, vec!["3".to_owned()], vec![]));
    let letter = amqp.take(&declared.dead_letters("pay")).await;
    let reason = shown(&letter, "reason").unwrap();
    assert!(reason.starts_with("poison: the event is of the type pay"), "{reason}");
    for worker in [mail, pay, last] {
        worker.stop().await;
    }
}

#[tokio::test]
async fn a_copy_keeps_its_publishers_own_type() {
    let declared = Declared::new("types: { mail: { retry: { delays: [50ms], max-attempts: 2 } } }").await;
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    for (kind, expected) in [(Some("com.example.Order"), "com.example.Order"), (None, "mail")] {
        let properties =
            kind.map_or_else(BasicProperties::default, |kind| BasicProperties::default().with_type(kind.into()));
        amqp.publish("t.scheduler", "mail.now", properties, b"1").await;
        let worker = Working::start(&hatchery, "mail", |_| Outcome::retry("no"));
        let letter = amqp.take(&declared.dead_letters("mail")).await;
        worker.stop().await;
        assert_eq!(letter.properties.kind().as_ref().map(ToString::to_string).as_deref(), Some(expected));
    }
}

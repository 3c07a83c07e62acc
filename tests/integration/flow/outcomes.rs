//! The outcomes that a handler may answer, and what follows from each.

use std::time::Duration;

use hatchery::{Event, NewEvent, Outcome};
use jiff::Timestamp;
use lapin::{
    BasicProperties,
    types::{AMQPValue, DecimalValue, FieldTable},
};

use crate::support::{
    amqp::{long, shown},
    declared::{Declared, publish},
    workers::Working,
};

const QUICK: &str = "retry: { delays: [100ms, 250ms], max-attempts: 4 }";

fn failure() -> Outcome {
    Outcome::Retry { reason: "no luck".into(), after: None }
}

async fn mail(more: &str) -> Declared {
    Declared::new(&format!("types: {{ mail: {{ {more} }} }}")).await
}

fn millis(from: Timestamp, to: Timestamp) -> i128 {
    to.duration_since(from).as_millis()
}

#[tokio::test]
async fn a_failing_event_waits_longer_each_time_and_counts_its_attempts() {
    let declared = mail(QUICK).await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "{}")).await;
    let worker = Working::start(&hatchery, "mail", |event| if event.attempts < 3 { failure() } else { Outcome::Done });
    let runs = worker.runs.reach(4).await;
    for (run, n) in runs.iter().zip(0..) {
        assert_eq!((run.event.attempts, run.event.stamp.generation), (n, n.into()));
    }
    let waited: Vec<i128> = runs.windows(2).map(|pair| millis(pair[0].at, pair[1].at)).collect();
    assert!(waited[0] >= 100 && waited[1] >= 250 && waited[2] >= 250, "{waited:?}");
    assert!(runs.windows(2).all(|pair| pair[0].fence < pair[1].fence));
    let reason = runs[3].event.reason.clone().unwrap();
    assert!(reason.starts_with("retry: attempt=3 failed_at=") && reason.ends_with("error=\"no luck\""), "{reason}");
    let summary = worker.stop().await;
    assert_eq!((summary.retried, summary.done), (3, 1));
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn the_last_attempts_failure_is_a_dead_letter_with_its_reason() {
    let declared = mail("retry: { delays: [50ms], max-attempts: 2 }").await;
    let hatchery = declared.connect().await;
    let id = publish(&hatchery, NewEvent::new("mail", "{}").reference("1234")).await;
    let worker = Working::start(&hatchery, "mail", |_| failure());
    let amqp = declared.amqp().await;
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    assert_eq!(letter.properties.message_id().as_ref().map(ToString::to_string), Some(id));
    assert_eq!(shown(&letter, "reference").as_deref(), Some("1234"));
    assert_eq!(shown(&letter, "attempts").as_deref(), Some("2"));
    assert_eq!(shown(&letter, "generation").as_deref(), Some("2"));
    let reason = shown(&letter, "reason").unwrap();
    assert!(reason.starts_with("given up: attempt=2 failed_at="), "{reason}");
    let summary = worker.stop().await;
    assert_eq!((summary.retried, summary.dead_lettered), (1, 1));
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_foreign_message_keeps_its_properties_but_the_priority_through_retry_and_dead_letter() {
    let declared = mail(QUICK).await;
    let hatchery = declared.connect().await;
    let mut headers = FieldTable::default();
    let foreign = [
        ("x-bool", AMQPValue::Boolean(true)),
        ("x-int", AMQPValue::LongInt(-7)),
        ("x-double", AMQPValue::Double(1.5)),
        ("x-decimal", AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 314 })),
        ("x-no-text", long([0xff, 0x00, 0xfe])),
        ("x-list", AMQPValue::FieldArray(vec![AMQPValue::Void, long("a")].into())),
        ("x-time", AMQPValue::Timestamp(1_780_000_000)),
        ("x-void", AMQPValue::Void),
    ];
    for (name, value) in foreign.clone() {
        headers.insert(name.into(), value);
    }
    headers.insert("x-table".into(), AMQPValue::FieldTable(headers.clone()));
    headers.insert("attempts".into(), AMQPValue::ShortShortUInt(1));
    for name in ["x-death", "x-acquired-count"] {
        headers.insert(name.into(), long("not ours"));
    }
    let properties = BasicProperties::default()
        .with_content_type("text/plain".into())
        .with_content_encoding("gzip".into())
        .with_priority(3)
        .with_correlation_id("c".into())
        .with_reply_to("r".into())
        .with_timestamp(1_780_000_000)
        .with_app_id("a".into())
        .with_cluster_id("x".into())
        .with_headers(headers);
    let amqp = declared.amqp().await;
    amqp.publish("t.scheduler", "mail.now", properties.clone(), &[0, 159, 146, 150]).await;
    let worker = Working::start(&hatchery, "mail", |event| match event.attempts {
        1 => failure(),
        _ => Outcome::DeadLetter { reason: "never".into() },
    });
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    assert_eq!(letter.data, [0, 159, 146, 150]);
    assert_eq!(letter.routing_key.as_str(), "mail.dead-letter");
    assert_eq!(letter.properties.content_type(), properties.content_type());
    assert_eq!(letter.properties.content_encoding(), properties.content_encoding());
    assert_eq!(*letter.properties.priority(), None);
    assert_eq!(letter.properties.correlation_id(), properties.correlation_id());
    assert_eq!(letter.properties.reply_to(), properties.reply_to());
    assert_eq!(letter.properties.timestamp(), properties.timestamp());
    assert_eq!(letter.properties.app_id(), properties.app_id());
    assert_eq!(letter.properties.cluster_id(), properties.cluster_id());
    assert_eq!(*letter.properties.delivery_mode(), Some(2));
    assert!(letter.properties.message_id().is_some(), "the worker gave the message no id");
    let (sent, got) = (properties.headers().clone().unwrap(), letter.properties.headers().clone().unwrap());
    for name in foreign.iter().map(|(name, _)| *name).chain(["x-table"]) {
        assert_eq!(got.inner().get(name), sent.inner().get(name), "{name}");
    }
    assert_eq!(shown(&letter, "attempts").as_deref(), Some("2"));
    assert_eq!(shown(&letter, "reason").as_deref(), Some("dead-letter: never"));
    for name in ["x-death", "x-acquired-count"] {
        assert_eq!(got.inner().get(name), None, "{got:?}");
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_retry_waits_as_long_as_its_handler_says() {
    let declared = mail(QUICK).await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "{}")).await;
    let after = Duration::from_millis(400);
    let worker = Working::start(&hatchery, "mail", move |event| match event.attempts {
        0 => Outcome::Retry { reason: "busy".into(), after: Some(after) },
        _ => Outcome::Done,
    });
    let runs = worker.runs.reach(2).await;
    assert!(millis(runs[0].at, runs[1].at) >= 400, "{runs:?}");
    assert!(runs[1].at >= runs[1].event.nbf.unwrap(), "{runs:?}");
    assert_eq!(runs[1].event.attempts, 1);
    worker.stop().await;
}

fn put_off(event: &Event) -> Outcome {
    let at = event.created_at.checked_add(Duration::from_millis(400)).unwrap();
    let again = event.reason.as_deref() == Some("next-change");
    if again { Outcome::Done } else { Outcome::Requeue { at, reason: "next-change".into() } }
}

#[tokio::test]
async fn a_requeued_event_without_coalescing_stays_the_same_event() {
    let declared = mail(QUICK).await;
    let hatchery = declared.connect().await;
    let id = publish(&hatchery, NewEvent::new("mail", "{}")).await;
    let worker = Working::start(&hatchery, "mail", put_off);
    let again = worker.runs.reach(2).await.remove(1);
    assert!(again.at >= again.event.nbf.unwrap(), "{again:?}");
    assert_eq!((again.event.id.as_str(), again.event.attempts), (id.as_str(), 0));
    assert_eq!(again.event.stamp.slot.to_string(), format!("e:{id}"));
    assert_eq!(again.event.stamp.generation, 1);
    let summary = worker.stop().await;
    assert_eq!((summary.requeued, summary.done), (1, 1));
}

#[tokio::test]
async fn a_requeue_to_a_near_or_past_time_waits_a_second() {
    for coalesce in ["off", "latest"] {
        let declared = mail(&format!("coalesce: {coalesce}")).await;
        let hatchery = declared.connect().await;
        publish(&hatchery, NewEvent::new("mail", "{}").reference("1234")).await;
        let worker = Working::start(&hatchery, "mail", |event| match event.reason.as_deref() {
            None => Outcome::Requeue { at: Timestamp::now() + Duration::from_millis(1), reason: "near".into() },
            Some("near") => Outcome::Requeue { at: event.created_at, reason: "past".into() },
            Some(_) => Outcome::Done,
        });
        let runs = worker.runs.reach(3).await;
        assert!(runs.windows(2).all(|pair| millis(pair[0].at, pair[1].at) >= 1_000), "{runs:?}");
        let summary = worker.stop().await;
        assert_eq!((summary.requeued, summary.done), (2, 1));
    }
}

#[tokio::test]
async fn a_requeued_coalesced_event_is_in_the_slot_of_its_date() {
    let declared = mail("coalesce: latest").await;
    let hatchery = declared.connect().await;
    let id = publish(&hatchery, NewEvent::new("mail", "old").reference("1234")).await;
    let worker = Working::start(&hatchery, "mail", put_off);
    worker.runs.reach(1).await;
    // A newer change does not replace the requeued one.
    publish(&hatchery, NewEvent::new("mail", "new").reference("1234").reason("next-change")).await;
    let mut runs = worker.runs.reach(3).await;
    runs.sort_by_key(|run| run.event.nbf.is_some());
    let again = &runs[2];
    assert_eq!((again.event.id.as_str(), again.event.attempts), (id.as_str(), 0));
    assert!(again.at >= again.event.nbf.unwrap(), "{again:?}");
    assert_eq!(again.event.stamp.slot.to_string(), format!("q:{}", again.event.nbf.unwrap().as_millisecond()));
    assert_eq!(again.event.stamp.generation, 0);
    let summary = worker.stop().await;
    assert_eq!((summary.requeued, summary.done), (1, 2));
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn two_dates_and_a_change_that_are_requeued_to_one_time_all_run_again() {
    let declared = mail("coalesce: { immediate: latest, delayed: each-time }").await;
    let hatchery = declared.connect().await;
    let now = Timestamp::now();
    let monday = now + Duration::from_secs(2);
    for (payload, at) in [("change", None), ("30 May", Some(300)), ("31 May", Some(600))] {
        let event = NewEvent::new("mail", payload).reference("1234");
        let at = at.map(|millis| now + Duration::from_millis(millis));
        publish(
            &hatchery,
            match at {
                Some(at) => event.at(at),
                None => event,
            },
        )
        .await;
    }
    let worker = Working::start(&hatchery, "mail", move |event| match event.reason {
        None => Outcome::Requeue { at: monday, reason: "office hours".into() },
        Some(_) => Outcome::Done,
    });
    let runs = worker.runs.reach(6).await;
    let mut again: Vec<_> =
        runs[3..].iter().map(|run| String::from_utf8_lossy(&run.event.payload).into_owned()).collect();
    again.sort();
    assert_eq!(again, ["30 May", "31 May", "change"]);
    assert!(runs[3..].iter().all(|run| run.at >= monday), "{runs:?}");
    let summary = worker.stop().await;
    assert_eq!((summary.requeued, summary.done), (3, 3));
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_dead_letter_outcome_makes_a_dead_letter_that_may_be_sent_again() {
    let declared = mail("coalesce: latest").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "{}").reference("1234")).await;
    let worker = Working::start(&hatchery, "mail", |event| match event.reason {
        None => Outcome::DeadLetter { reason: "no such\nemployee".into() },
        Some(_) => Outcome::Done,
    });
    let amqp = declared.amqp().await;
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    assert_eq!(shown(&letter, "reason").as_deref(), Some("dead-letter: no such employee"));
    assert_eq!(shown(&letter, "attempts").as_deref(), Some("0"));
    amqp.publish("t.processor", "mail.now", letter.properties.clone(), &letter.data).await;
    worker.runs.reach(2).await;
    let summary = worker.stop().await;
    assert_eq!((summary.dead_lettered, summary.done, summary.stale), (1, 1, 0));
}

#[tokio::test]
async fn a_failed_event_is_dropped_with_on_failure_drop() {
    let declared = mail("on-failure: drop").await;
    assert!(!declared.queues().iter().any(|queue| queue.contains(".retry.")), "{:?}", declared.queues());
    let hatchery = declared.connect().await;
    let failing = publish(&hatchery, NewEvent::new("mail", "fails")).await;
    publish(&hatchery, NewEvent::new("mail", "never works")).await;
    publish(&hatchery, NewEvent::new("mail", "works")).await;
    let worker = Working::start(&hatchery, "mail", |event| match &event.payload[..] {
        b"works" => Outcome::Done,
        b"fails" => failure(),
        _ => Outcome::DeadLetter { reason: "never".into() },
    });
    let amqp = declared.amqp().await;
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    assert_eq!(letter.data, b"never works");
    worker.runs.reach(3).await;
    let summary = worker.stop().await;
    assert_eq!((summary.dropped, summary.done, summary.dead_lettered, summary.retried), (1, 1, 1, 0));
    // A redelivery of a dropped event is as stale as one of a finished event.
    let again = BasicProperties::default().with_message_id(failing.as_str().into());
    amqp.publish("t.scheduler", "mail.now", again, b"fails").await;
    let worker = Working::with(hatchery.worker().stop_when_empty(true), "mail", |_| Outcome::Done);
    let summary = worker.ended().await.unwrap();
    assert_eq!((summary.stale, summary.done), (1, 0));
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn delays_with_jitter_are_spread_and_no_retry_is_early() {
    let declared = mail("retry: { delays: [300ms], max-attempts: 3, jitter: 100% }").await;
    assert!(!declared.queues().iter().any(|queue| queue.contains(".retry.")), "{:?}", declared.queues());
    let hatchery = declared.connect().await;
    for n in 0..20 {
        publish(&hatchery, NewEvent::new("mail", n.to_string())).await;
    }
    let worker = Working::start(&hatchery, "mail", |event| if event.attempts < 2 { failure() } else { Outcome::Done });
    let runs = worker.runs.reach(60).await;
    let mut waited = Vec::new();
    for n in 0..20 {
        let payload = n.to_string();
        let runs: Vec<_> = runs.iter().filter(|run| run.event.payload == payload.as_bytes()).collect();
        assert_eq!(runs.iter().map(|run| run.event.attempts).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(runs[1..].iter().all(|run| run.at >= run.event.nbf.unwrap()), "{runs:?}");
        waited.extend(runs.windows(2).map(|pair| millis(pair[0].at, pair[1].event.nbf.unwrap())));
    }
    // The delay begins at the failure, which is a little after the start. The ladder's step is 50 ms.
    assert!(waited.iter().all(|millis| *millis >= 300), "{waited:?}");
    let (least, most) = (waited.iter().min().unwrap(), waited.iter().max().unwrap());
    assert!(most - least > 100, "{waited:?}");
    let summary = worker.stop().await;
    assert_eq!((summary.retried, summary.done), (40, 20));
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_discarded_event_leaves_no_message() {
    let declared = mail("").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "{}")).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Discard { reason: "left".into() });
    worker.runs.reach(1).await;
    assert_eq!(worker.stop().await.discarded, 1);
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_handler_without_an_answer_within_its_timeout_has_failed() {
    let declared = mail("handler-timeout: 100ms, retry: { delays: [50ms], max-attempts: 1 }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "{}")).await;
    let worker = hatchery.worker().handle("mail", |_| std::future::pending::<Result<Outcome, String>>());
    let worker = Working::run(worker, crate::support::workers::Runs::default());
    let letter = declared.amqp().await.take(&declared.dead_letters("mail")).await;
    let reason = shown(&letter, "reason").unwrap();
    assert!(reason.ends_with("error=\"no answer within handler-timeout (100ms)\""), "{reason}");
    worker.stop().await;
}

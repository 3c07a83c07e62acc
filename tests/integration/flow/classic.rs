//! An event's way through classic queues.

use std::{collections::BTreeSet, time::Duration};

use hatchery::{NewEvent, Outcome};

use crate::support::{
    amqp::shown,
    broker::text,
    declared::{Declared, publish},
    workers::Working,
};

const CLASSIC: &str = "queue-type: classic
hatcheries: [300ms]
types:
  mail: { retry: { delays: [50ms, 100ms], max-attempts: 3 } }
";

#[tokio::test]
async fn classic_queues_delay_retry_and_dead_letter_events() {
    let declared = Declared::new(CLASSIC).await;
    let mut queues = declared.host.list("queues");
    // Streams hold no events.
    queues.retain(|queue| text(queue, "type") != "stream");
    assert!(queues.iter().all(|queue| text(queue, "type") == "classic"), "{queues:?}");
    assert_eq!(declared.host.names("policies"), ["t.life-cycle"]);

    let hatchery = declared.connect().await;
    let soon = |payload: &'static str, millis| NewEvent::new("mail", payload).delay(Duration::from_millis(millis));
    for event in [soon("now", 0), soon("named", 300), soon("ladder", 775), soon("never", 50)] {
        publish(&hatchery, event).await;
    }
    let worker = Working::start(&hatchery, "mail", |event| match (&event.payload[..], event.attempts) {
        (b"now", 0..2) | (b"never", _) => Outcome::Retry { reason: "no luck".into(), after: None },
        _ => Outcome::Done,
    });
    let amqp = declared.amqp().await;
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    assert_eq!((&letter.data[..], shown(&letter, "attempts").as_deref()), (&b"never"[..], Some("3")));

    let runs = worker.runs.reach(8).await;
    let ran: Vec<(String, u32)> =
        runs.iter().map(|run| (String::from_utf8_lossy(&run.event.payload).into_owned(), run.event.attempts)).collect();
    let expected =
        [("ladder", 0), ("named", 0), ("never", 0), ("never", 1), ("never", 2), ("now", 0), ("now", 1), ("now", 2)];
    assert_eq!(ran.into_iter().collect::<BTreeSet<_>>(), expected.map(|(what, n)| (what.to_owned(), n)).into());
    assert!(runs.iter().all(|run| run.event.nbf.is_none_or(|nbf| run.at >= nbf)), "{runs:?}");
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.retried, summary.dead_lettered), (3, 4, 1));
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn classic_queues_dead_letter_rejected_messages_and_keep_unroutable_ones() {
    let declared = Declared::new(CLASSIC).await;
    let amqp = declared.amqp().await;
    amqp.publish("t.scheduler", "mail.now", lapin::BasicProperties::default(), b"{}").await;
    amqp.reject(&declared.processing("mail")).await;
    assert_eq!(amqp.take(&declared.dead_letters("mail")).await.routing_key.as_str(), "mail.now");
    amqp.publish("t.scheduler", "nobody.300ms", lapin::BasicProperties::default(), b"{}").await;
    assert_eq!(amqp.take("t.unrouted").await.routing_key.as_str(), "nobody.300ms");
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

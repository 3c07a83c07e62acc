//! Delayed events: none runs before its date, and all run.

use std::time::Duration;

use hatchery::{NewEvent, Outcome};
use jiff::Timestamp;

use crate::support::{
    broker::eventually,
    declared::{Declared, publish},
    workers::Working,
};

#[tokio::test]
async fn an_event_without_a_date_runs_at_once_with_all_its_properties() {
    let declared = Declared::new("types: { mail: {} }").await;
    let hatchery = declared.connect().await;
    let event =
        NewEvent::new("mail", "{}").reference("1234").correlation_id("c").traceparent("00-1-2-01").reason("new");
    let id = publish(&hatchery, event).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let event = worker.runs.reach(1).await.remove(0).event;
    assert_eq!((event.id, event.attempts, event.nbf), (id, 0, None));
    assert_eq!(event.reference.map(|reference| reference.to_string()).as_deref(), Some("1234"));
    assert_eq!(event.correlation_id.as_deref(), Some("c"));
    assert_eq!(event.traceparent.as_deref(), Some("00-1-2-01"));
    assert_eq!(event.reason.as_deref(), Some("new"));
    assert_eq!(event.content_type.as_deref(), Some("application/json"));
    assert_eq!(&event.payload[..], b"{}");
    assert_eq!(worker.stop().await.done, 1);
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn an_event_with_a_named_delay_waits_in_its_hatchery() {
    let declared = Declared::new("hatcheries: [300ms, 1h]\ntypes: { mail: {} }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "short").delay(Duration::from_millis(300))).await;
    publish(&hatchery, NewEvent::new("mail", "long").delay(Duration::from_hours(1))).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let run = worker.runs.reach(1).await.remove(0);
    assert!(run.at >= run.event.nbf.unwrap(), "{run:?}");
    worker.stop().await;
    let filled = declared.amqp().await.filled(&declared.queues()).await;
    assert_eq!(filled, [("t.hatchery.1h".to_owned(), 1)].into());
}

/// RabbitMQ 4.0 to 4.2 count each look as a return, and have a default limit of 20.
#[tokio::test]
async fn an_event_that_somebody_looks_at_often_stays_in_its_hatchery() {
    let declared = Declared::new("hatcheries: [1h]\ntypes: { mail: {} }").await;
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    publish(&hatchery, NewEvent::new("mail", "{}").delay(Duration::from_hours(1))).await;
    amqp.requeue_first("t.hatchery.1h", 25).await;
    amqp.expect_untouched("t.hatchery.1h", 1).await;
}

#[tokio::test]
async fn sixty_events_with_different_delays_all_run_and_none_early() {
    let declared = Declared::new("types: { mail: { prefetch: 100, concurrency: 100 } }").await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let events = (1..=60).map(|n| NewEvent::new("mail", n.to_string()).delay(Duration::from_millis(n * 25))).collect();
    assert!(hatchery.publisher().publish_batch(events).await.iter().all(Result::is_ok));
    for run in worker.runs.reach(60).await {
        assert!(run.at >= run.event.nbf.unwrap(), "{run:?}");
    }
    let mut payloads = worker.runs.payloads();
    payloads.sort_by_key(|payload| payload.parse::<u32>().unwrap());
    assert_eq!(payloads, (1..=60).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(worker.stop().await.done, 60);
}

#[tokio::test]
async fn an_event_whose_date_is_past_runs_at_once() {
    let declared = Declared::new("types: { mail: {} }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "{}").at(Timestamp::UNIX_EPOCH)).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    assert_eq!(worker.runs.reach(1).await[0].event.nbf, Some(Timestamp::UNIX_EPOCH));
    worker.stop().await;
}

#[tokio::test]
async fn an_event_beyond_the_horizon_passes_the_ladder_until_it_is_due() {
    // The ladder takes at most three steps of 50 ms at once, so a delay of 3 s needs twenty passes. On a busy machine
    // they are fewer.
    let ladder = "ladder: { resolution: 50ms, horizon: 100ms }";
    let declared = Declared::new(&format!("{ladder}\ntypes: {{ mail: {{}} }}")).await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    declared.amqp().await.consumed(&declared.processing("mail")).await;
    publish(&hatchery, NewEvent::new("mail", "{}").delay(Duration::from_secs(3))).await;
    let run = worker.runs.reach(1).await.remove(0);
    assert!(run.at >= run.event.nbf.unwrap(), "{run:?}");
    assert_eq!((run.event.attempts, run.event.stamp.generation), (0, 0));
    let summary = worker.stop().await;
    assert_eq!(summary.done, 1);
    assert!(summary.delivered >= 3, "{summary:?}");
}

#[tokio::test]
async fn the_latest_possible_date_passes_the_ladder_and_never_runs() {
    let declared = Declared::new("ladder: { resolution: 50ms, horizon: 100ms }\ntypes: { mail: {} }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "{}").at(Timestamp::MAX)).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let amqp = declared.amqp().await;
    let ladder: Vec<String> = declared.queues().into_iter().filter(|queue| queue.contains(".ladder.")).collect();
    // The event is seen in the ladder, out of it, and in it again.
    for there in [true, false, true, false, true] {
        eventually("the event enters or leaves the ladder", async || {
            (amqp.filled(&ladder).await.is_empty() != there).then_some(())
        })
        .await;
    }
    assert!(worker.runs.seen().is_empty());
    assert_eq!(worker.stop().await.done, 0);
}

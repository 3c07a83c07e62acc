//! Connections that break while events are under way, and queues and exchanges that are deleted.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use hatchery::{NewEvent, Outcome};

use crate::support::{
    broker::eventually,
    declared::{Declared, publish},
    relay::Relay,
    workers::Working,
};

#[tokio::test]
#[ignore = "cuts connections and waits until both sides are back; scripts/test --all runs it"]
async fn a_cut_connection_loses_nothing_and_publisher_and_worker_reconnect() {
    const EVENTS: usize = 400;
    let declared = Declared::new("types: { mail: { retry: { delays: [100ms] } } }").await;
    let relay = Relay::to(&declared.host.amqp()).await;
    let hatchery = declared.connect_by(&relay.url).await;
    // Each event fails once, so that retries are published during the cuts, too.
    let worker = Working::start(&hatchery, "mail", |event| match event.attempts {
        0 => Outcome::Retry { reason: "no luck".into(), after: None },
        _ => Outcome::Done,
    });
    let publisher = hatchery.publisher();
    let publishing = tokio::spawn(async move {
        let events = (0..EVENTS).map(|n| NewEvent::new("mail", n.to_string())).collect();
        publisher.publish_batch(events).await.into_iter().filter_map(Result::ok).count()
    });
    for cuts in 0..8 {
        let before = relay.accepted();
        worker.runs.reach(cuts * EVENTS / 10 + 1).await;
        relay.cut();
        eventually("a new connection is relayed", async || (relay.accepted() > before).then_some(())).await;
    }
    assert_eq!(publishing.await.unwrap(), EVENTS, "a publish failed");
    worker.runs.reach(2 * EVENTS).await;
    let amqp = declared.amqp().await;
    amqp.expect_empty(&declared.queues()).await;
    let mut runs = BTreeMap::<String, Vec<u32>>::new();
    for run in worker.runs.seen() {
        runs.entry(String::from_utf8(run.event.payload.to_vec()).unwrap()).or_default().push(run.event.attempts);
    }
    worker.stop().await;
    assert_eq!(runs.len(), EVENTS);
    // A cut is no crash: the worker settles each run, and the register knows what is delivered again.
    let twice: Vec<_> = runs.iter().filter(|(_, attempts)| **attempts != [0, 1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_deleted_queue_is_consumed_again_once_it_is_declared() {
    let declared = Declared::new("types: { mail: {} }").await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    publish(&hatchery, NewEvent::new("mail", "1")).await;
    worker.runs.reach(1).await;
    let amqp = declared.amqp().await;
    amqp.delete_queue(&declared.processing("mail")).await;
    // Without its queue the event is unrouted, and not lost.
    publish(&hatchery, NewEvent::new("mail", "2")).await;
    let kept = amqp.take("t.unrouted").await;
    assert_eq!(kept.data, b"2");
    assert!(worker.is_running());
    declared.apply().await;
    publish(&hatchery, NewEvent::new("mail", "3")).await;
    worker.runs.reach(2).await;
    assert_eq!(worker.runs.payloads(), ["1", "3"]);
    assert_eq!(worker.stop().await.done, 2);
}

#[tokio::test]
async fn a_publish_without_its_exchange_names_it_and_works_again_once_it_is_declared() {
    let declared = Declared::new("types: { mail: {} }").await;
    let hatchery = declared.connect().await;
    declared.host.delete("exchanges", &["t.scheduler"]);
    let error = hatchery.publisher().publish(NewEvent::new("mail", "1")).await.unwrap_err().to_string();
    assert!(error.contains("the exchange t.scheduler") && error.contains("topology apply"), "{error}");
    declared.apply().await;
    publish(&hatchery, NewEvent::new("mail", "2")).await;
}

#[tokio::test]
async fn an_event_that_ran_but_cannot_publish_its_follow_up_is_not_run_by_another_worker() {
    let declared = Declared::new("types: { mail: { lease: 1s, retry: { delays: [50ms] } } }").await;
    let relay = Relay::to(&declared.host.amqp()).await;
    let (cut_off, other) = (declared.connect_by(&relay.url).await, declared.connect().await);
    publish(&other, NewEvent::new("mail", "{}")).await;
    let failure = || Outcome::Retry { reason: "no luck".into(), after: None };
    let (first, gate) = Working::gated_with(cut_off.worker(), "mail", failure());
    first.runs.reach(1).await;
    let second = Working::start(&other, "mail", move |event| match event.attempts {
        0 => failure(),
        _ => Outcome::Done,
    });
    relay.close();
    let closed = Instant::now();
    gate.let_through(1);
    // The second worker gets the delivery, and finds it busy after 0, 250, 750, 1,750 ms and so on.
    let amqp = declared.amqp().await;
    let long_wait = "t.ladder.50ms-5.04-800ms";
    eventually("the event is busy for longer than its lease of 1 s", async || {
        (closed.elapsed() > Duration::from_secs(2) && amqp.ready(long_wait).await > 0).then_some(())
    })
    .await;
    assert!(second.runs.seen().is_empty());
    // A worker that stops finishes what it has begun, and does not consume the copy that it publishes.
    let stopping = tokio::spawn(first.stop());
    relay.open();
    let run = second.runs.reach(1).await.remove(0);
    assert_eq!(run.event.attempts, 1);
    amqp.expect_empty(&declared.queues()).await;
    assert_eq!(stopping.await.unwrap().retried, 1);
    second.stop().await;
}

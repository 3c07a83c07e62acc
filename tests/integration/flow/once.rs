//! An event runs effectively once, and an exclusive reference runs one event at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hatchery::{NewEvent, Outcome, Run};
use tokio::sync::Semaphore;

use crate::support::{
    broker::eventually,
    declared::{Declared, publish},
    workers::{Runs, Working},
};

#[tokio::test]
async fn an_id_that_is_published_twice_runs_once() {
    let declared = Declared::new("types: { mail: {} }").await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    for id in ["order-1", "order-1", "order-2"] {
        publish(&hatchery, NewEvent::new("mail", id).id(id)).await;
    }
    worker.runs.reach(2).await;
    // The id is remembered after its event has finished, too.
    publish(&hatchery, NewEvent::new("mail", "order-1").id("order-1")).await;
    publish(&hatchery, NewEvent::new("mail", "order-3").id("order-3")).await;
    worker.runs.reach(3).await;
    let mut payloads = worker.runs.payloads();
    payloads.sort();
    assert_eq!(payloads, ["order-1", "order-2", "order-3"]);
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.retried), (3, 0));
    assert_eq!(declared.amqp().await.ready(&declared.dead_letters("mail")).await, 0);
}

#[tokio::test]
async fn a_redelivery_of_a_finished_event_is_dropped() {
    let declared = Declared::new("types: { mail: {}, import: { coalesce: latest } }").await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    for event_type in ["mail", "import"] {
        publish(&hatchery, NewEvent::new(event_type, "{}").reference("1234")).await;
        let copy = amqp.take(&declared.processing(event_type)).await;
        let again = async || {
            let key = format!("{event_type}.now");
            amqp.publish("t.processor", &key, copy.properties.clone(), &copy.data).await;
        };
        let worker = Working::start(&hatchery, event_type, |_| Outcome::Done);
        again().await;
        worker.runs.reach(1).await;
        again().await;
        // This event is behind the redelivery in the queue, so the redelivery has arrived when it runs.
        publish(&hatchery, NewEvent::new(event_type, "{}").reference("5678")).await;
        worker.runs.reach(2).await;
        let summary = worker.stop().await;
        assert_eq!((summary.done, summary.delivered), (2, 3), "{event_type}");
        assert!(amqp.filled(&declared.queues()).await.is_empty());
    }
}

#[tokio::test]
async fn two_workers_never_run_an_exclusive_reference_at_the_same_time() {
    let declared = Declared::new("types: { mail: { exclusive: true } }").await;
    let (one, other) = (declared.connect().await, declared.connect().await);
    let (runs, inside, most) = (Runs::default(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::new(Semaphore::new(0));
    let start = |hatchery: &hatchery::Hatchery| {
        let (noted, inside, most, gate) = (runs.clone(), Arc::clone(&inside), Arc::clone(&most), Arc::clone(&gate));
        let worker = hatchery.worker().handle("mail", move |run: Run| {
            let (noted, inside, most, gate) =
                (noted.clone(), Arc::clone(&inside), Arc::clone(&most), Arc::clone(&gate));
            async move {
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                noted.note(&run);
                gate.acquire().await.map_err(|error| error.to_string())?.forget();
                inside.fetch_sub(1, Ordering::SeqCst);
                Ok::<_, String>(Outcome::Done)
            }
        });
        Working::run(worker, runs.clone())
    };
    let workers = [start(&one), start(&other)];
    for n in 0..6 {
        publish(&one, NewEvent::new("mail", n.to_string()).reference("1234")).await;
    }
    runs.reach(1).await;
    // The first event runs until another one has found its reference busy.
    let amqp = declared.amqp().await;
    let turned_away = async || (!amqp.filled(&declared.hatcheries()).await.is_empty()).then_some(());
    eventually("some events wait as busy in a hatchery", turned_away).await;
    assert_eq!(runs.seen().len(), 1);
    gate.add_permits(6);
    let seen = runs.reach(6).await;
    assert!(seen.iter().any(|run| run.event.busy >= 1), "{seen:?}");
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert!(seen.windows(2).all(|pair| pair[0].fence < pair[1].fence), "a run's fence is not above the one before");
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!(runs.seen().len(), 6);
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn events_of_one_reference_run_side_by_side_by_default() {
    let declared = Declared::new("types: { mail: {} }").await;
    let hatchery = declared.connect().await;
    let (worker, gate) = Working::gated(hatchery.worker(), "mail");
    for n in 0..3 {
        publish(&hatchery, NewEvent::new("mail", n.to_string()).reference("1234")).await;
    }
    worker.runs.reach(3).await;
    gate.let_through(3);
    assert_eq!(worker.stop().await.done, 3);
}

#[tokio::test]
async fn an_event_of_a_busy_reference_waits_and_spends_no_attempt() {
    let declared = Declared::new("types: { mail: { exclusive: true, lease: 1s } }").await;
    let hatchery = declared.connect().await;
    let (worker, gate) = Working::gated(hatchery.worker(), "mail");
    for payload in ["first", "second"] {
        publish(&hatchery, NewEvent::new("mail", payload).reference("1234")).await;
    }
    worker.runs.reach(1).await;
    let amqp = declared.amqp().await;
    // The waits of 250, 500 and 1,000 ms, and so on, take longer than a lease that is not renewed.
    let runs_since = Instant::now();
    // It passes the hatchery of 250 ms only once, which a busy machine may not see.
    for queue in ["t.ladder.50ms-5.03-400ms", "t.ladder.50ms-5.04-800ms"] {
        let look = async || (amqp.ready(queue).await > 0).then_some(());
        eventually(&format!("the event waits in {queue}"), look).await;
    }
    eventually("the event still waits", async || {
        (runs_since.elapsed() > Duration::from_secs(2) && amqp.ready("t.ladder.50ms-5.04-800ms").await > 0)
            .then_some(())
    })
    .await;
    assert_eq!(worker.runs.seen().len(), 1);
    gate.let_through(2);
    let second = worker.runs.reach(2).await.remove(1).event;
    assert_eq!((second.attempts, second.stamp.generation), (0, 0));
    assert!(second.busy >= 2, "{second:?}");
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.busy), (2, second.busy.into()));
}

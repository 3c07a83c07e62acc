//! An event runs effectively once, also one that a person sends back from the dead letters, and an exclusive reference runs
//! one event at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use hatchery::{NewEvent, Outcome, Run};
use rstest::rstest;
use tokio::sync::Semaphore;

use crate::support::{
    broker::eventually,
    declared::{Declared, publish},
    logs::Logs,
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

/// The cases are the ways in which a person sends a dead letter.
#[rstest]
#[case::to_the_processor("t.processor", "import.dead-letter")]
#[case::to_its_queue("", "t.processor.import")]
#[tokio::test]
async fn a_replaced_dead_letter_that_is_sent_again_is_dropped_with_a_warning(
    #[case] exchange: &str,
    #[case] key: &str,
) {
    let logs = Logs::capture();
    let declared = Declared::new("types: { import: { coalesce: latest } }").await;
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    let worker = Working::start(&hatchery, "import", |event| match &event.payload[..] {
        b"old" => Outcome::DeadLetter { reason: "no such employee".into() },
        _ => Outcome::Done,
    });
    let event = |payload: &str| NewEvent::new("import", payload.to_owned()).reference("1234");
    let old = publish(&hatchery, event("old")).await;
    let letter = amqp.take(&declared.dead_letters("import")).await;
    publish(&hatchery, event("new")).await;
    worker.runs.reach(2).await;
    // A copy without the reason of a dead letter is dropped without a warning.
    amqp.publish("t.processor", "import.now", letter.properties.clone().with_headers(ordinary(&letter)), b"old").await;
    amqp.publish(exchange, key, letter.properties.clone(), &letter.data).await;
    amqp.expect_empty(&declared.queues()).await;
    let summary = worker.stop().await;
    assert_eq!((summary.delivered, summary.stale + summary.replaced, summary.done), (4, 2, 1), "{summary:?}");
    let said = logs.with(&["dropped an event that was re-sent by hand"]);
    assert_eq!(said.len(), 1, "{said:?}");
    let told = [
        &*old,
        "import",
        "1234",
        "a newer event of its reference has replaced it: version 1",
        "which has been handled",
    ];
    assert_eq!(logs.with(&told), said);
}

/// Returns the headers without the reason, which marks a dead letter.
fn ordinary(letter: &lapin::message::BasicGetMessage) -> lapin::types::FieldTable {
    let mut headers = lapin::types::FieldTable::default();
    for (name, value) in letter.properties.headers().as_ref().unwrap().inner() {
        if name.as_str() != "reason" {
            headers.insert(name.clone(), value.clone());
        }
    }
    headers
}

#[tokio::test]
async fn a_dead_letter_that_is_sent_again_runs_once() {
    let logs = Logs::capture();
    let declared = Declared::new("types: { import: { coalesce: latest } }").await;
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    let dead = Outcome::DeadLetter { reason: "no such employee".into() };
    let worker =
        Working::start(&hatchery, "import", move |event| if event.by_hand { Outcome::Done } else { dead.clone() });
    publish(&hatchery, NewEvent::new("import", "old").reference("1234")).await;
    let letter = amqp.take(&declared.dead_letters("import")).await;
    for _ in 0..2 {
        amqp.publish("t.processor", "import.dead-letter", letter.properties.clone(), &letter.data).await;
        amqp.expect_empty(&declared.queues()).await;
    }
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.stale), (1, 1), "{summary:?}");
    assert_eq!(logs.with(&["dropped an event that was re-sent by hand", "it has been handled"]).len(), 1);
}

/// With a prefetch of 4, at most two waiting events are held in memory.
#[tokio::test]
async fn a_busy_reference_does_not_take_the_whole_prefetch() {
    let declared = Declared::new("types: { mail: { exclusive: on, prefetch: 4, concurrency: 4 } }").await;
    let hatchery = declared.connect().await;
    for n in 0..6 {
        publish(&hatchery, NewEvent::new("mail", n.to_string()).reference("busy")).await;
    }
    publish(&hatchery, NewEvent::new("mail", "other").reference("other")).await;
    let (worker, gate) = Working::gated(hatchery.worker(), "mail");
    let runs = worker.runs.reach(2).await;
    assert_eq!(runs[1].event.reference.as_ref().unwrap().as_str(), "other");
    assert_eq!(runs[1].event.busy, 0, "the event of the other reference had to wait");
    gate.let_through(7);
    let runs = worker.runs.reach(7).await;
    assert!(runs.iter().any(|run| run.event.busy > 0), "{runs:?}");
    let amqp = declared.amqp().await;
    eventually("all events are handled", async || amqp.filled(&declared.passages()).await.is_empty().then_some(()))
        .await;
    let summary = worker.stop().await;
    assert_eq!(summary.done, 7);
}

//! `on-failure: block`: an event is tried until it works, and no other event of its type overtakes it.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use hatchery::{Event, Hatchery, NewEvent, Outcome, Run};
use lapin::BasicProperties;

use crate::support::{
    amqp::{Amqp, headers, long, shown},
    broker::eventually,
    declared::{Declared, publish},
    logs::Logs,
    relay::Relay,
    say,
    wire::{Wire, short},
    workers::{Runs, Working},
};

fn failure() -> Outcome {
    Outcome::Retry { reason: "no luck".into(), after: None }
}

async fn blocking(top: &str, more: &str) -> Declared {
    Declared::new(&format!("{top}types: {{ mail: {{ on-failure: block, {more} }} }}")).await
}

async fn publish_all(hatchery: &Hatchery, payloads: &[&'static str]) {
    for payload in payloads {
        publish(hatchery, NewEvent::new("mail", *payload)).await;
    }
}

#[tokio::test]
async fn a_failing_event_is_tried_until_it_works_and_nothing_overtakes_it() {
    let declared = blocking("", "retry: { delays: [50ms, 120ms] }").await;
    assert!(!declared.queues().iter().any(|queue| queue.contains(".retry.")), "{:?}", declared.queues());
    let hatchery = declared.connect().await;
    publish_all(&hatchery, &["a", "b", "c", "d"]).await;
    let fails = |event: &Event| &event.payload[..] == b"b" && event.attempts < 3;
    let worker = Working::start(&hatchery, "mail", move |event| if fails(event) { failure() } else { Outcome::Done });
    let runs = worker.runs.reach(7).await;
    assert_eq!(worker.runs.payloads().concat(), "abbbbcd");
    let waited: Vec<i128> = runs.windows(2).map(|pair| pair[1].at.duration_since(pair[0].at).as_millis()).collect();
    assert!(waited[1] >= 50 && waited[2] >= 120 && waited[3] >= 120, "{waited:?}");
    assert_eq!(runs[1..5].iter().map(|run| run.event.attempts).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let Event { reason, first_failure, last_failure, .. } = &runs[4].event;
    assert!(reason.as_deref().unwrap().starts_with("block: attempt=3 failed_at="), "{reason:?}");
    assert!(
        first_failure < last_failure && last_failure.as_deref().unwrap().ends_with("Z no luck"),
        "{last_failure:?}"
    );
    let summary = worker.stop().await;
    assert_eq!((summary.delivered, summary.done, summary.retried), (4, 4, 3));
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_dead_letter_outcome_and_a_poison_message_block_nothing() {
    let declared = blocking("", "retry: { delays: [20ms] }").await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    publish_all(&hatchery, &["a", "hopeless"]).await;
    amqp.publish("t.scheduler", "mail.now", headers(&[("attempts", long("many"))]), b"poison").await;
    publish_all(&hatchery, &["b"]).await;
    let worker = Working::start(&hatchery, "mail", |event| match (&event.payload[..], event.attempts) {
        (b"hopeless", 0) => failure(),
        (b"hopeless", _) => Outcome::DeadLetter { reason: "never".into() },
        _ => Outcome::Done,
    });
    worker.runs.reach(4).await;
    assert_eq!(worker.runs.payloads(), ["a", "hopeless", "hopeless", "b"]);
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    assert_eq!(shown(&letter, "reason").as_deref(), Some("dead-letter: never"));
    assert_eq!(shown(&letter, "attempts").as_deref(), Some("1"));
    assert!(shown(&letter, "first_failure").unwrap().ends_with("Z no luck"));
    assert!(shown(&letter, "last_failure").unwrap().ends_with("Z never"));
    assert_eq!(amqp.take(&declared.dead_letters("mail")).await.data, b"poison");
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.dead_lettered, summary.poisoned), (2, 1, 1));
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

/// An event is given back after half of `ack-timeout`, which is 400 ms here.
#[tokio::test]
async fn an_event_that_waits_longer_than_the_ack_timeout_allows_is_given_back_in_order() {
    let more = "handler-timeout: 100ms, drain-timeout: 100ms, retry: { delays: [3s] }, prefetch: 4";
    let declared = blocking("ack-timeout: 800ms\n", more).await;
    let hatchery = declared.connect().await;
    publish_all(&hatchery, &["a", "b", "c", "d", "e", "f"]).await;
    let fails = |event: &Event| &event.payload[..] == b"b" && event.attempts < 2;
    let worker = Working::start(&hatchery, "mail", move |event| if fails(event) { failure() } else { Outcome::Done });
    let runs = worker.runs.reach(8).await;
    assert_eq!(worker.runs.payloads().concat(), "abbbcdef");
    let waited: Vec<i128> = runs.windows(2).map(|pair| pair[1].at.duration_since(pair[0].at).as_millis()).collect();
    assert!(waited[1] >= 3_000 && waited[2] >= 3_000, "{waited:?}");
    assert_eq!(runs[3].event.attempts, 2);
    let summary = worker.stop().await;
    // Each of the two waits gives the event and the three behind it back at least twice. It has time for seven times, because a
    // busy machine is slow to deliver them again.
    assert!(summary.given_back >= 4 * 4 && summary.delivered == 6 + summary.given_back, "{summary:?}");
    assert_eq!((summary.done, summary.retried), (6, 2));
}

#[tokio::test]
async fn a_stop_gives_everything_back_in_order_and_the_next_worker_goes_on() {
    let declared = blocking("", "retry: { delays: [1h] }").await;
    let hatchery = declared.connect().await;
    publish_all(&hatchery, &["a", "b", "c", "d"]).await;
    let first = Working::start(&hatchery, "mail", |event| if event.payload == "b" { failure() } else { Outcome::Done });
    // Another pod, which waits until the first one ends.
    let other = declared.connect().await;
    first.runs.reach(2).await;
    let second = Working::start(&other, "mail", |_| Outcome::Done);
    let summary = first.stop().await;
    assert_eq!((summary.done, summary.given_back), (1, 3));
    second.runs.reach(3).await;
    assert_eq!(second.runs.payloads().concat(), "bcd");
    assert_eq!(second.stop().await.done, 3);
}

/// Waits until the queue's single consumer has been replaced. Asks the queue itself: the management API lists consumers as it
/// saw them up to five seconds ago, and those that live for milliseconds hardly ever (measured on 3.10).
async fn wait_for_new_consumer(amqp: &Amqp, queue: &str) {
    for (what, consumers) in [("has a consumer", 1), ("lost its consumer", 0), ("has a consumer again", 1)] {
        eventually(&format!("{queue} {what}"), async || (amqp.consumers(queue).await == consumers).then_some(())).await;
    }
}

#[tokio::test]
#[ignore = "waits three times until a consumer is replaced; scripts/test --all runs it"]
async fn an_idle_worker_that_consumes_anew_keeps_the_order_and_loses_nothing() {
    let declared = blocking("", "prefetch: 4").await;
    let hatchery = declared.connect_restlessly(Duration::from_millis(50)).await;
    let (amqp, queue) = (declared.amqp().await, declared.processing("mail"));
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let mut published = Vec::new();
    for round in 0..2 {
        wait_for_new_consumer(&amqp, &queue).await;
        for place in 0..6 {
            let payload = format!("{round}.{place}");
            publish(&hatchery, NewEvent::new("mail", payload.clone())).await;
            published.push(payload);
        }
        worker.runs.reach(published.len()).await;
    }
    wait_for_new_consumer(&amqp, &queue).await;
    assert_eq!(worker.stop().await.done, 12);
    assert!(amqp.filled(&declared.queues()).await.is_empty());
    // The consumer that existed at the stop is gone, and holds up no other worker.
    let next = Working::start(&declared.connect().await, "mail", |_| Outcome::Done);
    publish(&hatchery, NewEvent::new("mail", "after")).await;
    next.runs.reach(1).await;
    next.stop().await;
}

#[tokio::test]
#[ignore = "starts and stops many workers; scripts/test --all runs it"]
async fn workers_that_stop_while_they_consume_anew_leave_no_consumer_behind() {
    let declared = blocking("", "prefetch: 4").await;
    // So short that a consumer is nearly always being replaced.
    let hatchery = declared.connect_restlessly(Duration::from_millis(1)).await;
    let publisher = declared.connect().await;
    let (amqp, queue) = (declared.amqp().await, declared.processing("mail"));
    for round in 0..2 {
        let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
        let payloads: Vec<_> = (0..3).map(|place| format!("{round}.{place}")).collect();
        for payload in &payloads {
            publish(&publisher, NewEvent::new("mail", payload.clone())).await;
        }
        worker.runs.reach(payloads.len()).await;
        assert_eq!(worker.runs.payloads(), payloads);
        wait_for_new_consumer(&amqp, &queue).await;
        worker.stop().await;
    }
    eventually("the queue has no consumer", async || (amqp.consumers(&queue).await == 0).then_some(())).await;
}

#[tokio::test]
async fn a_redelivered_event_that_is_done_is_dropped_and_blocks_nothing() {
    let declared = blocking("", "coalesce: latest, retry: { delays: [2s] }").await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    publish(&hatchery, NewEvent::new("mail", "old").reference("1234").id("one")).await;
    let worker =
        Working::start(&hatchery, "mail", |event| if event.payload == "old" { failure() } else { Outcome::Done });
    worker.runs.reach(1).await;
    // The newer event replaces the older one, which waits for its next try.
    publish(&hatchery, NewEvent::new("mail", "new").reference("1234")).await;
    worker.runs.reach(2).await;
    assert_eq!(worker.runs.payloads(), ["old", "new"]);
    amqp.publish("t.scheduler", "mail.now", BasicProperties::default().with_message_id("x".into()), b"x").await;
    worker.runs.reach(3).await;
    amqp.publish("t.scheduler", "mail.now", BasicProperties::default().with_message_id("x".into()), b"x").await;
    publish(&hatchery, NewEvent::new("mail", "last")).await;
    worker.runs.reach(4).await;
    assert_eq!(worker.runs.payloads(), ["old", "new", "x", "last"]);
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.replaced, summary.stale), (3, 1, 1));
}

const EVENTS: usize = 10_000;
/// Every hundredth event fails.
const FAILING: usize = 100;
/// How often each failing event fails.
const FAILURES: u32 = 3;
/// How many workers are aborted in the middle of a run.
const KILLED: usize = 3;

/// The runs of all workers, in the order of their starts.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Start>>>);

#[derive(Clone, Copy, Debug)]
struct Start {
    worker: usize,
    event: usize,
    fails: bool,
}

impl Log {
    fn worker(&self, number: usize, hatchery: &Hatchery) -> Working {
        let log = self.clone();
        let worker = hatchery.worker().handle("mail", move |run: Run| {
            let event: usize = std::str::from_utf8(&run.event.payload).unwrap().parse().unwrap();
            let fails = event % FAILING == 7 && run.event.attempts < FAILURES;
            log.0.lock().unwrap().push(Start { worker: number, event, fails });
            async move {
                tokio::task::yield_now().await;
                if fails { Err("no luck") } else { Ok(Outcome::Done) }
            }
        });
        Working::run(worker, Runs::default())
    }

    fn starts(&self) -> Vec<Start> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until this event has started, and returns the number of its worker. The time limit is for each next start,
    /// not for all of the many starts before this event.
    async fn reaches(&self, event: usize) -> usize {
        let mut seen = 0;
        loop {
            let what = format!("a handler starts after {seen} starts, on the way to event {event}");
            let last = eventually(&what, async || {
                let starts = self.0.lock().unwrap();
                starts.last().copied().filter(|last| starts.len() > seen || last.event >= event)
            })
            .await;
            if last.event >= event {
                return last.worker;
            }
            seen = self.0.lock().unwrap().len();
        }
    }
}

/// Several workers take over from each other: the active one is aborted three times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "handles 10,000 events in order; scripts/test --all runs it"]
async fn ten_thousand_events_run_in_order_although_some_fail_and_workers_die() {
    let declared = blocking("", "lease: 500ms, retry: { delays: [5ms, 10ms] }").await;
    // All are published on one channel, because only that defines their order: publishes in flight at the same time
    // have none.
    let numbers = (0..EVENTS).map(|n| n.to_string());
    declared.amqp().await.publish_in_order("t.scheduler", "mail.now", numbers).await;
    let (log, began) = (Log::default(), Instant::now());
    let mut workers = BTreeMap::new();
    for number in 0..=KILLED {
        let hatchery = declared.connect().await;
        workers.insert(number, (log.worker(number, &hatchery), hatchery));
    }
    for n in 1..=KILLED {
        let active = log.reaches(EVENTS * n / (KILLED + 1)).await;
        let (worker, _hatchery) = workers.remove(&active).unwrap();
        worker.kill().await;
    }
    log.reaches(EVENTS - 1).await;
    for (worker, _hatchery) in workers.into_values() {
        worker.stop().await;
    }
    let starts = log.starts();
    if let Some(at) = starts.windows(2).position(|pair| pair[0].event > pair[1].event) {
        panic!("the events ran out of order: {:#?}", &starts[at.saturating_sub(20)..(at + 20).min(starts.len())]);
    }
    let mut done: BTreeMap<usize, usize> = BTreeMap::new();
    let mut failed: BTreeMap<usize, u32> = BTreeMap::new();
    for Start { event, fails, .. } in starts {
        if fails { *failed.entry(event).or_default() += 1 } else { *done.entry(event).or_default() += 1 }
    }
    assert_eq!(done.len(), EVENTS, "not every event is done");
    let twice: Vec<_> = done.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.len() <= KILLED && twice.iter().all(|(_, times)| **times == 2), "{twice:?}");
    assert_eq!(failed.len(), EVENTS / FAILING);
    // A worker that takes over counts the failures from the beginning.
    let more: Vec<_> = failed.iter().filter(|(_, times)| **times != FAILURES).collect();
    assert!(more.len() <= KILLED && more.iter().all(|(_, times)| **times > FAILURES), "{more:?}");
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
    say(&format!(
        "block: {EVENTS} events in order in {:.1?}; {} of them failed {FAILURES} times, {KILLED} workers were killed, {} ran twice",
        began.elapsed(),
        failed.len(),
        twice.len(),
    ));
}

/// The flag of the property `message_id`.
const MESSAGE_ID: u16 = 1 << 7;

/// lapin closes the connection on which it gets such a message, and with it the consumers of all types.
#[tokio::test]
#[ignore = "waits until a consumer is replaced; scripts/test --all runs it"]
async fn an_unreadable_message_of_another_type_does_not_change_the_order() {
    let declared = Declared::new("types: { mail: { on-failure: block }, other: {} }").await;
    let hatchery = declared.connect().await;
    let payloads = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    publish_all(&hatchery, &payloads).await;
    Wire::connect(&declared.host.amqp()).publish("t.processor", b"other.now", MESSAGE_ID, &short(b"caf\xe9"), b"{}");
    let (worker, _) = Working::start_both(&hatchery, ["mail", "other"]);
    worker.runs.reach(payloads.len()).await;
    assert_eq!(worker.runs.payloads(), payloads);
    worker.stop().await;
}

/// With a prefetch of 1 and its only event at work, the type waits for no delivery on the connection that ends.
#[tokio::test]
async fn a_type_with_a_prefetch_of_one_notices_that_its_connection_has_ended() {
    let declared =
        Declared::new("types: { mail: { on-failure: block, prefetch: 1, retry: { delays: [50ms] } }, other: {} }")
            .await;
    let relay = Relay::to(&declared.host.amqp()).await;
    let (hatchery, logs) = (declared.connect_by(&relay.url).await, Logs::capture());
    publish_all(&hatchery, &["0"]).await;
    let (works, runs) = (Arc::new(AtomicBool::new(false)), Runs::default());
    let (does, seen) = (Arc::clone(&works), runs.clone());
    let worker = hatchery.worker().handle("other", |_| std::future::ready(Ok::<_, String>(Outcome::Done)));
    let worker = worker.handle("mail", move |run: Run| {
        seen.note(&run);
        std::future::ready(if does.load(Ordering::SeqCst) { Ok(Outcome::Done) } else { Err("no luck") })
    });
    let worker = Working::run(worker, runs);
    let failed = async |times: usize| {
        let told = ["a connection to the broker is lost"];
        eventually("the worker's connection ends", async || (logs.with(&told).len() >= times).then_some(())).await;
    };
    worker.runs.reach(1).await;
    let mut unreadable = Wire::connect(&declared.host.amqp());
    unreadable.publish("t.processor", b"other.now", MESSAGE_ID, &short(b"caf\xe9"), b"{}");
    failed(1).await;
    worker.runs.reach(worker.runs.seen().len() + 3).await;
    relay.cut();
    failed(2).await;
    works.store(true, Ordering::SeqCst);
    publish_all(&hatchery, &["1"]).await;
    eventually("both events are done", async || (worker.runs.payloads().last()? == "1").then_some(())).await;
    assert_eq!(worker.stop().await.done, 2);
}

#[tokio::test]
async fn an_unreadable_message_blocks_its_queue_until_it_is_removed() {
    let declared = blocking("", "retry: { delays: [50ms] }").await;
    let (hatchery, logs) = (declared.connect().await, Logs::capture());
    publish_all(&hatchery, &["0", "1", "2", "3", "4"]).await;
    Wire::connect(&declared.host.amqp()).publish("t.processor", b"mail.now", MESSAGE_ID, &short(b"caf\xe9"), b"{}");
    publish_all(&hatchery, &["5", "6", "7"]).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let told = ["ERROR", "a message in t.processor.mail cannot be read", "until somebody removes it"];
    let said = async |times: usize| {
        eventually("the worker logs that a message cannot be read", async || {
            (logs.with(&told).len() >= times).then_some(())
        })
        .await;
    };
    // The events that were delivered together with it run in order.
    worker.runs.reach(8).await;
    said(2).await;
    publish_all(&hatchery, &["later"]).await;
    said(logs.with(&told).len() + 2).await;
    assert_eq!(worker.runs.payloads(), ["0", "1", "2", "3", "4", "5", "6", "7"], "{:#?}", logs.with(&[]));
    let amqp = declared.amqp().await;
    // A purge does not remove a message that is delivered at the moment, so it is repeated.
    eventually("the unreadable message is removed", async || {
        amqp.purge(&declared.processing("mail")).await;
        publish(&hatchery, NewEvent::new("mail", "after")).await;
        (worker.runs.seen().len() > 8).then_some(())
    })
    .await;
    assert_eq!(worker.runs.payloads()[8], "after");
    worker.stop().await;
}

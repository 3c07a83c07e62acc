//! Types that somebody has paused, on a real broker.

use std::{future::ready, time::Duration};

use hatchery::{
    CancellationToken, Hatchery, NewEvent, Outcome, Readiness, Run, Worker,
    internals::switches::{Name, Pause, Paused, PausedBy, Switches},
};
use jiff::Timestamp;
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{
    broker::{Rights, VirtualHost, eventually},
    declared::{Declared, publish, publish_all},
    logs::Logs,
    process::{Place, Process},
    redis::{Server, free_port},
    relay::Relay,
    workers::{Runs, Working},
};

fn of(event_type: &str) -> Paused {
    Paused::Type(Name(event_type.parse().unwrap()))
}

/// The switches of a test, each snapshot with a higher number than the one before.
#[derive(Default)]
struct Person(Switches);

impl Person {
    /// Pauses, and returns when that was confirmed.
    async fn pause(&mut self, declared: &Declared, what: Paused) -> Timestamp {
        let now = Timestamp::now();
        let pause = Pause { of: what, by: PausedBy::Person, reason: "R".to_owned(), since: now, until: None };
        self.0 = std::mem::take(&mut self.0).with(pause, now);
        declared.switch(&self.0).await;
        Timestamp::now()
    }

    /// Resumes, and returns when that began.
    async fn resume(&mut self, declared: &Declared, what: &Paused) -> Timestamp {
        let now = Timestamp::now();
        self.0 = std::mem::take(&mut self.0).without(what, now);
        declared.switch(&self.0).await;
        now
    }
}

/// Waits until no run has started for this many looks, ten milliseconds apart. (RabbitMQ counts a cancelled consumer until its last
/// delivery is settled.)
async fn expect_quiet(runs: &[Runs], looks: u32) {
    let (mut before, mut quiet) = (0, 0);
    eventually("nothing is started", async || {
        let count = runs.iter().map(Runs::count).sum();
        quiet = if count == before { quiet + 1 } else { 0 };
        before = count;
        (quiet == looks).then_some(())
    })
    .await;
}

/// Waits until the worker has read that the type is paused. It goes by its last word until then: it is ready because it consumes, and so
/// has a consumer, or because the type is paused. Many looks in a row find no consumer, because a worker that consumes anew has none for a
/// moment. (The management API is asked: the queue counts a cancelled consumer until its last delivery is settled.)
async fn expect_paused(readiness: &Readiness, host: &VirtualHost, queue: &str) {
    let mut looks = 0;
    eventually("the worker is paused", async || {
        let has_consumer = host.list("consumers").iter().any(|consumer| consumer["queue"]["name"] == queue);
        looks = if readiness.is_ready() && !has_consumer { looks + 1 } else { 0 };
        (looks == 20).then_some(())
    })
    .await;
}

/// Publishes an event of a paused type, and waits for a while. The event does not run.
async fn expect_held(hatchery: &Hatchery, runs: &Runs) {
    let before = runs.count();
    publish(hatchery, NewEvent::new("mail", "held")).await;
    expect_quiet(std::slice::from_ref(runs), 20).await;
    assert_eq!(runs.count(), before);
}

/// A worker that handles `mail`.
fn start(hatchery: &Hatchery) -> (Working, Readiness) {
    let runs = Runs::default();
    let worker = handled(hatchery.worker(), "mail", &runs);
    let readiness = worker.readiness();
    (Working::run(worker, runs), readiness)
}

/// Handles a type, each event for two milliseconds.
fn handled(worker: Worker, event_type: &str, runs: &Runs) -> Worker {
    let runs = runs.clone();
    worker.handle(event_type, move |run: Run| {
        runs.note(&run);
        async {
            tokio::time::sleep(Duration::from_millis(2)).await;
            Ok::<_, String>(Outcome::Done)
        }
    })
}

fn events(event_type: &str, count: usize) -> Vec<NewEvent> {
    (0..count).map(|n| NewEvent::new(event_type, n.to_string())).collect()
}

/// The payloads of the runs, each once, and how often another run had the same.
fn payloads(runs: &Runs) -> (usize, usize) {
    let mut payloads = runs.payloads();
    let all = payloads.len();
    payloads.sort();
    payloads.dedup();
    (payloads.len(), all - payloads.len())
}

#[tokio::test]
async fn a_pause_under_load_stops_all_starts_within_a_second_and_loses_nothing() {
    const EACH: usize = 3_000;
    let types = ["mail", "plain", "exact"];
    let text =
        "types: { mail: { concurrency: 4 }, plain: { register: off, concurrency: 4 }, exact: { on-failure: block } }";
    let declared = Declared::new(text).await;
    let (hatchery, amqp, mut person) = (declared.connect().await, declared.amqp().await, Person::default());
    for event_type in types {
        publish_all(&hatchery, events(event_type, if event_type == "exact" { EACH / 10 } else { EACH })).await;
    }
    let runs = [Runs::default(), Runs::default(), Runs::default()];
    let worker = types.iter().zip(&runs).fold(hatchery.worker(), |worker, (of, runs)| handled(worker, of, runs));
    let readiness = worker.readiness();
    let worker = Working::run(worker, Runs::default());
    for runs in &runs {
        runs.reach(50).await;
    }
    let paused = person.pause(&declared, Paused::All).await;
    expect_quiet(&runs, 200).await;
    eventually("the management API has no consumer but that of the switches", async || {
        let consumers = declared.host.list("consumers");
        consumers.iter().all(|consumer| consumer["queue"]["name"] == "t.control").then_some(())
    })
    .await;
    assert!(readiness.is_ready());
    let resumed = person.resume(&declared, &Paused::All).await;
    let until = paused + Duration::from_secs(1);
    for (runs, count) in runs.iter().zip([EACH, EACH, EACH / 10]) {
        runs.reach(count).await;
        let during = runs.seen().iter().filter(|seen| seen.at > until && seen.at < resumed).count();
        assert_eq!((payloads(runs), during), ((count, 0), 0), "a pause of {}", resumed.duration_since(paused));
    }
    amqp.expect_empty(&declared.queues()).await;
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.put_aside), (2 * EACH as u64 + EACH as u64 / 10, 0), "{summary:?}");
    // The order of `exact`.
    let order: Vec<String> = (0..EACH / 10).map(|n| n.to_string()).collect();
    assert_eq!(runs[2].payloads(), order);
}

#[tokio::test]
#[ignore = "pauses twenty times; scripts/test --all runs it"]
async fn twenty_pauses_put_no_event_aside() {
    const ALL: usize = 40_000;
    let text = "types: { plain: { register: off, prefetch: 200, concurrency: 20 } }";
    let declared = Declared::new(text).await;
    let (hatchery, amqp, mut person) = (declared.connect().await, declared.amqp().await, Person::default());
    let (runs, logs) = (Runs::default(), Logs::capture());
    let workers: Vec<Working> =
        (0..2).map(|_| Working::run(handled(hatchery.worker(), "plain", &runs), Runs::default())).collect();
    let mut publishing = JoinSet::new();
    let publisher = hatchery.publisher();
    publishing.spawn(async move {
        for part in 0..ALL / 500 {
            let events: Vec<NewEvent> =
                (0..500).map(|n| NewEvent::new("plain", (500 * part + n).to_string())).collect();
            for published in publisher.publish_batch(events).await {
                published.unwrap();
            }
        }
    });
    for _ in 0..20 {
        let before = runs.count();
        runs.reach((before + 100).min(ALL)).await;
        person.pause(&declared, of("plain")).await;
        expect_quiet(std::slice::from_ref(&runs), 20).await;
        person.resume(&declared, &of("plain")).await;
    }
    publishing.join_next().await.unwrap().unwrap();
    runs.reach(ALL).await;
    amqp.expect_empty(&declared.queues()).await;
    assert_eq!(payloads(&runs), (ALL, 0));
    let mut aside = 0;
    for worker in workers {
        aside += worker.stop().await.put_aside;
    }
    let warned = logs.with(&["WARN"]).into_iter().filter(|line| !line.contains("event put aside")).collect::<Vec<_>>();
    assert_eq!(aside, 0, "{warned:?}");
}

#[tokio::test]
async fn a_worker_that_is_killed_while_it_is_paused_loses_nothing_and_the_next_one_is_paused() {
    let text = "types: { plain: { register: off, concurrency: 1 }, mail: { concurrency: 1 } }";
    for event_type in ["plain", "mail"] {
        let declared = Declared::new(text).await;
        let (hatchery, mut person, place) = (declared.connect().await, Person::default(), Place::new(&declared));
        let script = place.write("handler.sh", "cat >> runs; echo >> runs; while [ ! -e go ]; do sleep 0.01; done\n");
        publish_all(&hatchery, events(event_type, 10)).await;
        let worker = Process::spawn(place.worker(event_type, &script));
        eventually("the first event runs", async || (place.lines("runs").len() == 1).then_some(())).await;
        person.pause(&declared, of(event_type)).await;
        let amqp = declared.amqp().await;
        eventually("the worker is paused", async || {
            place.lines("log").iter().any(|line| line.contains("paused: R")).then_some(())
        })
        .await;
        place.write("go", "");
        assert!(worker.ended_by(rustix::process::Signal::KILL).await.killed());
        let queue = declared.processing(event_type);
        eventually("the events are back", async || (amqp.ready(&queue).await >= 9).then_some(())).await;
        let ready = amqp.ready(&queue).await;
        let worker = Process::spawn(place.worker(event_type, &script));
        eventually("the next worker is paused", async || {
            (place.lines("log").iter().filter(|line| line.contains("paused: R")).count() == 2).then_some(())
        })
        .await;
        amqp.expect_untouched(&queue, ready).await;
        person.resume(&declared, &of(event_type)).await;
        eventually("all events have run", async || {
            let mut lines = place.lines("runs");
            lines.sort();
            lines.dedup();
            (lines.len() == 10).then_some(())
        })
        .await;
        amqp.expect_empty(&declared.queues()).await;
        assert_eq!(worker.stop().await["put_aside"], json!(0));
    }
}

#[tokio::test]
async fn a_pause_outlives_an_emptied_redis() {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis("types: { mail: {}, other: {} }", &redis.url).await;
    let (hatchery, amqp, mut person) = (declared.connect().await, declared.amqp().await, Person::default());
    person.pause(&declared, of("mail")).await;
    let (worker, others) = Working::start_both(&hatchery, ["mail", "other"]);
    publish_all(&hatchery, events("mail", 5)).await;
    publish(&hatchery, NewEvent::new("other", "before")).await;
    others.reach(1).await;
    redis.say(&["FLUSHALL"]).await;
    publish(&hatchery, NewEvent::new("other", "after")).await;
    others.reach(2).await;
    amqp.expect_untouched(&declared.processing("mail"), 5).await;
    assert_eq!(worker.runs.count(), 0);
    person.resume(&declared, &of("mail")).await;
    worker.runs.reach(5).await;
    assert_eq!(worker.stop().await.done, 7);
}

#[tokio::test]
async fn a_worker_without_the_right_to_read_the_switches_starts_nothing_and_ends() {
    let declared = Declared::new("types: { mail: {}, plain: { register: off } }").await;
    let rights = |read: &str| Rights { write: ".*".to_owned(), read: read.to_owned(), ..Rights::default() };
    let user = declared.host.user("worker", &rights("^t\\.(?!control)"));
    let (hatchery, amqp) = (declared.connect_by(&user.amqp()).await, declared.amqp().await);
    for event_type in ["mail", "plain"] {
        publish(&hatchery, NewEvent::new(event_type, "held")).await;
    }
    let worker = ["mail", "plain"]
        .iter()
        .fold(hatchery.worker(), |worker, of| worker.handle(of, |_: Run| ready(Ok::<_, String>(Outcome::Done))));
    let error = worker.run(CancellationToken::new()).await.expect_err("no right").to_string();
    assert!(error.contains("t.control") && error.contains("ACCESS_REFUSED"), "{error}");
    for event_type in ["mail", "plain"] {
        amqp.expect_untouched(&declared.processing(event_type), 1).await;
    }
}

#[tokio::test]
async fn a_worker_that_reads_the_last_word_anew_again_and_again_follows_it() {
    let declared = Declared::new("types: { mail: {} }").await;
    let (hatchery, mut person) = (declared.connect_restlessly(Duration::from_millis(50)).await, Person::default());
    let (worker, readiness) = start(&hatchery);
    for round in 0..5 {
        person.pause(&declared, of("mail")).await;
        expect_paused(&readiness, &declared.host, &declared.processing("mail")).await;
        expect_held(&hatchery, &worker.runs).await;
        person.resume(&declared, &of("mail")).await;
        worker.runs.reach(round + 1).await;
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_follows_the_switches_after_its_connections_were_cut() {
    let declared = Declared::new("types: { mail: {} }").await;
    let relay = Relay::to(&declared.host.amqp()).await;
    let (hatchery, mut person) = (declared.connect_by(&relay.url).await, Person::default());
    let (worker, readiness) = start(&hatchery);
    let direct = declared.connect().await;
    for _ in 0..3 {
        let before = worker.runs.count();
        publish(&direct, NewEvent::new("mail", "runs")).await;
        worker.runs.reach(before + 1).await;
        relay.close();
        eventually("the worker consumes nothing", async || (!readiness.is_ready()).then_some(())).await;
        person.pause(&declared, of("mail")).await;
        relay.open();
        expect_paused(&readiness, &declared.host, &declared.processing("mail")).await;
        expect_held(&direct, &worker.runs).await;
        person.resume(&declared, &of("mail")).await;
        worker.runs.reach(before + 2).await;
    }
    worker.stop().await;
}

/// The broker has all of it back, and delivers it to another worker.
#[tokio::test]
async fn what_a_paused_worker_held_when_its_connection_was_lost_runs_once() {
    const EVENTS: usize = 20;
    let declared = Declared::new(
        "defaults: { prefetch: 50, concurrency: 1, handler-timeout: 35s }\ntypes: { plain: { register: off } }",
    )
    .await;
    let relay = Relay::to(&declared.host.amqp()).await;
    let (direct, by_relay) = (declared.connect().await, declared.connect_by(&relay.url).await);
    let (amqp, queue, mut person) = (declared.amqp().await, declared.processing("plain"), Person::default());
    let (holder, gate) = Working::gated(by_relay.worker(), "plain");
    publish_all(&direct, events("plain", EVENTS)).await;
    holder.runs.reach(1).await;
    eventually("one worker holds all events", async || (amqp.ready(&queue).await == 0).then_some(())).await;
    person.pause(&declared, of("plain")).await;
    let mut all = EVENTS;
    eventually("it takes no more", async || {
        publish(&direct, NewEvent::new("plain", "later")).await;
        all += 1;
        for _ in 0..20 {
            if amqp.ready(&queue).await == 0 {
                return None;
            }
        }
        Some(())
    })
    .await;

    relay.close();
    let back = u32::try_from(all).unwrap();
    eventually("the broker has them back", async || (amqp.ready(&queue).await == back).then_some(())).await;
    person.resume(&declared, &of("plain")).await;
    let other = Working::start(&direct, "plain", |_| Outcome::Done);
    other.runs.reach(all).await;

    relay.open();
    gate.let_through(all);
    eventually("both consume", async || (amqp.consumers(&queue).await == 2).then_some(())).await;
    expect_quiet(&[holder.runs.clone(), other.runs.clone()], 50).await;
    assert_eq!(holder.runs.count(), 1, "it had started one before");
    holder.stop().await;
    other.stop().await;
}

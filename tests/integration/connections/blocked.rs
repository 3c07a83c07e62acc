//! A broker that is low on memory or disk blocks publishers. It still delivers, and takes acknowledgements.

use std::fs;

use bytes::Bytes;
use hatchery::{NewEvent, Outcome};
use rustix::process::Signal;

use crate::support::{
    broker::eventually,
    declared::{Declared, publish},
    private,
    process::{Place, Process},
    redis,
    workers::Working,
};

/// Returns the resident memory of this process in MB.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "blocks a broker of its own, publishes 2,000 large events; scripts/test --all runs it"]
async fn publishing_to_a_blocked_broker_waits_in_bounded_memory_and_consuming_goes_on() {
    const PUBLISHES: usize = 2_000;
    let mut broker = private::broker().await;
    let declared = Declared::on(broker.host(), "types: { mail: { prefetch: 10 }, big: {} }", redis::url()).await;
    let hatchery = declared.connect().await;
    for n in 0..100 {
        publish(&hatchery, NewEvent::new("mail", n.to_string())).await;
    }
    broker.block().await;
    // Half a gigabyte if each publish copied the payload.
    let (payload, before) = (Bytes::from(vec![b'x'; 256 * 1024]), resident());
    let publishing: Vec<_> = (0..PUBLISHES)
        .map(|_| tokio::spawn(hatchery.publisher().publish(NewEvent::new("big", payload.clone()))))
        .collect();
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(100).await;
    let amqp = declared.amqp().await;
    // The queue stays empty, so every delivery is acknowledged.
    amqp.expect_untouched(&declared.processing("mail"), 0).await;
    assert_eq!(worker.stop().await.done, 100);
    assert!(publishing.iter().all(|publish| !publish.is_finished()), "a publish to the blocked broker has ended");
    let grown = resident().saturating_sub(before);
    assert!(grown < 250, "the process has grown by {grown} MB");
    for publish in &publishing {
        publish.abort();
    }
    broker.unblock().await;
    // A new publish does not wait behind the aborted ones.
    publish(&hatchery, NewEvent::new("mail", "after")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "blocks a broker of its own, lets a drain time-out pass; scripts/test --all runs it"]
async fn a_worker_logs_once_that_the_broker_is_blocked_and_stops_within_its_limit() {
    let mut broker = private::broker().await;
    let text = "types: { mail: { drain-timeout: 10m, lease: 1s, retry: { delays: [50ms] } } }";
    let declared = Declared::on(broker.host(), text, redis::url()).await;
    let hatchery = declared.connect().await;
    for n in 0..5 {
        publish(&hatchery, NewEvent::new("mail", n.to_string())).await;
    }
    let place = Place::new(&declared);
    let script = place.write("handler.sh", "echo $(cat) $EVENT_ATTEMPTS >> runs; [ $EVENT_ATTEMPTS = 1 ]");
    broker.block().await;
    let worker = Process::spawn(place.worker("mail", &script));
    let said = |what: &str| place.lines("log").iter().filter(|line| line.contains(what)).count();
    let blocked = "the broker takes no messages for now";
    eventually("the worker logs that the broker is blocked", async || (said(blocked) > 0).then_some(())).await;
    eventually("all events have run", async || (place.lines("runs").len() >= 5).then_some(())).await;
    broker.unblock().await;
    eventually("the worker logs that the broker is unblocked", async || {
        (said("the broker takes messages again") > 0).then_some(())
    })
    .await;
    eventually("all events have run twice", async || (place.lines("runs").len() >= 10).then_some(())).await;
    let summary = worker.stop().await;
    assert_eq!((&summary["retried"], &summary["done"]), (&5.into(), &5.into()), "{summary}");
    assert_eq!((said(blocked), said("takes messages again")), (1, 1), "{:?}", place.lines("log"));
    assert!(
        place.lines("log").iter().any(|line| line.contains(blocked) && line.contains("low on")),
        "the log lacks the broker's reason"
    );

    publish(&hatchery, NewEvent::new("mail", "last")).await;
    broker.block().await;
    let mut command = place.worker("mail", &script);
    command.args(["--drain-timeout", "1s"]);
    let worker = Process::spawn(command);
    eventually("the last event has run", async || (place.lines("runs").len() == 11).then_some(())).await;
    worker.signal(Signal::TERM);
    worker.ended().await.expect(0);
    broker.unblock().await;
    // The event is still in the queue. The follow-up of its run may be there too.
    let worker = Process::spawn(place.worker("mail", &script));
    eventually("the retry of the last event has run", async || {
        place.lines("runs").contains(&"last 1".to_owned()).then_some(())
    })
    .await;
    declared.amqp().await.expect_empty(&declared.queues()).await;
    worker.stop().await;
    assert_eq!(said("it was started before and never settled"), 0, "{:?}", place.lines("log"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "blocks a broker of its own; scripts/test --all runs it"]
async fn failed_events_do_not_keep_others_from_running_while_the_broker_is_blocked() {
    const EVENTS: usize = 2_000;
    // Every twentieth event fails at first. Its delivery takes a place of the prefetch until its retry is published.
    const FAIL: usize = EVENTS / 20;
    let mut broker = private::broker().await;
    let text = "types: { mail: { prefetch: 200, concurrency: 10, retry: { delays: [50ms] } } }";
    let declared = Declared::on(broker.host(), text, redis::url()).await;
    let hatchery = declared.connect().await;
    for n in 0..EVENTS {
        publish(&hatchery, NewEvent::new("mail", n.to_string())).await;
    }
    broker.block().await;
    let worker = Working::start(&hatchery, "mail", |event| {
        let n: usize = String::from_utf8_lossy(&event.payload).parse().unwrap();
        match n % 20 {
            0 if event.attempts == 0 => Outcome::Retry { reason: "no luck".into(), after: None },
            _ => Outcome::Done,
        }
    });
    // All events run, ten times as many as may fail at a time if a failed one kept its place among the runs.
    worker.runs.reach(EVENTS).await;
    assert!(worker.runs.seen().iter().all(|run| run.event.attempts == 0), "a retry came through a blocked broker");
    broker.unblock().await;
    worker.runs.reach(EVENTS + FAIL).await;
    declared.amqp().await.expect_empty(&declared.queues()).await;
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.retried), (EVENTS as u64, FAIL as u64));
}

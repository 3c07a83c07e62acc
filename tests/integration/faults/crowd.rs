//! A worker is killed while many events run in it at the same time.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use hatchery::NewEvent;
use rstest::rstest;

use super::{event_type, types};
use crate::support::{
    broker::eventually,
    declared::Declared,
    process::{Place, Process},
};

const EVENTS: usize = 60;
/// How many events run at the same time.
const CONCURRENCY: usize = 4;
/// The most events that run twice: those that run, and those that have run and are being settled.
const TWICE: usize = 2 * CONCURRENCY;
/// A failed event keeps no place while its retry is published, so only the prefetch bounds how many wait for a confirm.
const PREFETCH: usize = 20;
/// The worker is killed when it passes the fail point for this many times.
const PASSING: usize = 25;

const POINTS: [&str; 7] = [
    "work.delivered",
    "work.claimed",
    "work.handled",
    "broker.sent",
    "work.followed-up",
    "work.settled",
    "work.acknowledged",
];

/// Each event fails for as many attempts as `failures`.
#[rstest]
#[case::events_that_succeed(0, TWICE)]
#[case::events_that_fail_once(1, PREFETCH)]
#[tokio::test]
#[ignore = "kills a worker at each of seven fail points; scripts/test --all runs it"]
async fn a_killed_worker_repeats_few_events(#[case] failures: usize, #[case] most: usize) {
    let script = format!("echo \"$EVENT_ID $EVENT_ATTEMPTS\" >> runs; test \"$EVENT_ATTEMPTS\" -ge {failures}");
    // Nothing is sent for an event that succeeds.
    let points = POINTS.iter().filter(|point| failures > 0 || **point != "broker.sent");
    let defaults = format!(
        "defaults: {{ lease: 1s, prefetch: {PREFETCH}, concurrency: {CONCURRENCY}, \
         retry: {{ delays: [200ms], max-attempts: 3 }} }}\n"
    );
    let declared = Declared::new(&(defaults + &types(&POINTS))).await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    let cases = points.map(async |point| {
        let place = Place::new(&declared);
        let event_type = event_type(point);
        let events = (0..EVENTS).map(|n| NewEvent::new(event_type.clone(), "{}").id(n.to_string())).collect();
        assert!(hatchery.publisher().publish_batch(events).await.iter().all(Result::is_ok));
        let script = place.write("handler.sh", &script);
        let mut doomed = place.worker(&event_type, &script);
        doomed.env("HATCHERY_KILL_AT", format!("{point}:{PASSING}"));
        let ended = Process::spawn(doomed).ended().await;
        assert!(ended.killed(), "{point}: {ended:?}");

        let second = Process::spawn(place.worker(&event_type, &script));
        let mut runs = BTreeMap::new();
        eventually(&format!("{point}: each event has succeeded"), async || {
            runs = count(&place.lines("runs"));
            let done = (0..EVENTS).filter(|n| runs.contains_key(&format!("{n} {failures}"))).count();
            (done == EVENTS).then_some(())
        })
        .await;
        amqp.expect_empty(&declared.passages()).await;
        second.stop().await;
        let runs = count(&place.lines("runs"));
        // A queue may look empty while the second worker holds a redelivery of which it has run the retry. It is stale.
        place.run(place.worker(&event_type, &script).arg("--stop-when-empty")).await.expect(0);
        assert_eq!(count(&place.lines("runs")), runs, "{point}: nothing is left to run");
        let twice: Vec<_> = runs.iter().filter(|(_, count)| **count > 1).collect();
        assert!(twice.len() <= most && twice.iter().all(|(_, count)| **count == 2), "{point}: {twice:?}");
        assert_eq!(runs.len(), (failures + 1) * EVENTS, "{point}");
    });
    join_all(cases).await;
    let left = amqp.filled(&declared.queues()).await;
    assert!(left.is_empty(), "{left:?}");
}

fn count(lines: &[String]) -> BTreeMap<String, usize> {
    let mut runs = BTreeMap::new();
    for line in lines {
        *runs.entry(line.clone()).or_default() += 1;
    }
    runs
}

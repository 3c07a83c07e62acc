//! A publisher is killed at each of its fail points. Its caller then publishes again, or gives up.

use std::{ops::RangeInclusive, path::Path};

use futures_util::future::join_all;
use rstest::rstest;

use super::{event_type, types, worker::spawn_consuming};
use crate::support::{amqp::Amqp, broker::eventually, declared::Declared, process::Place};

const POINTS: [&str; 4] = ["publish.reserved", "broker.sent", "publish.confirmed", "publish.recorded"];

/// How the caller of a killed publisher goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Caller {
    /// Does nothing, because it was killed too.
    GivesUp,
    /// Publishes the same event again.
    Repeats,
    /// Publishes the same event again after a worker has emptied the queues.
    RepeatsLate,
}

/// Returns how often the event may run, as `docs/guarantees.md` says.
fn allowed(point: &str, caller: Caller, coalesced: bool) -> RangeInclusive<usize> {
    match (point, caller) {
        ("publish.reserved", Caller::GivesUp) => 0..=0,
        ("broker.sent", Caller::GivesUp) => 0..=1,
        // A change that is published after a run has begun gets a run of its own.
        ("broker.sent", Caller::RepeatsLate) if coalesced => 1..=2,
        ("publish.confirmed" | "publish.recorded", Caller::RepeatsLate) if coalesced => 2..=2,
        // Both copies are of one event, as the register sees by its version or id.
        _ => 1..=1,
    }
}

#[rstest]
#[tokio::test]
#[ignore = "kills a publisher at each of four fail points; scripts/test --all runs it"]
async fn a_killed_publisher_loses_nothing_that_was_confirmed(
    #[values(Caller::GivesUp, Caller::Repeats, Caller::RepeatsLate)] caller: Caller,
    #[values("off", "latest")] coalesce: &str,
) {
    let declared = Declared::new(&format!("defaults: {{ coalesce: {coalesce} }}\n{}", types(&POINTS))).await;
    let amqp = declared.amqp().await;
    let runs = join_all(POINTS.iter().map(|point| case(&declared, &amqp, point, caller))).await;
    let mut wrong = Vec::new();
    for (point, runs) in POINTS.iter().zip(runs) {
        let allowed = allowed(point, caller, coalesce == "latest");
        if !allowed.contains(&runs) {
            wrong.push(format!("{point}: {runs} runs, and allowed are {allowed:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

/// Publishes as the case says, handles what is in the queues, and returns the number of runs.
async fn case(declared: &Declared, amqp: &Amqp, point: &str, caller: Caller) -> usize {
    let place = Place::new(declared);
    let event_type = event_type(point);
    let script = place.write("handler.sh", "echo \"$EVENT_ID\" >> runs");
    let publish =
        || place.command(&["publish", &event_type, "--reference", "1234", "--id", "the-event", "--payload", "{}"]);
    let killed = place.run(publish().env("HATCHERY_KILL_AT", point)).await;
    assert!(killed.killed() && killed.stdout.is_empty(), "{point}: {killed:?}");

    if caller == Caller::RepeatsLate {
        work_off(&place, amqp, &event_type, &script).await;
    }
    if caller != Caller::GivesUp {
        assert_eq!(place.run(&mut publish()).await.expect(0).stdout, "the-event\n");
    }
    work_off(&place, amqp, &event_type, &script).await;
    let runs = place.lines("runs");
    assert!(runs.iter().all(|id| id == "the-event"), "{runs:?}");
    runs.len()
}

async fn work_off(place: &Place<'_>, amqp: &Amqp, event_type: &str, script: &Path) {
    let worker = spawn_consuming(place, place.worker(event_type, script)).await;
    // A copy that finds the other copy running waits in a hatchery, and all types share the hatcheries.
    let shared = |queue: &String| !queue.contains(".processor.") || queue.ends_with(&format!(".{event_type}"));
    let queues: Vec<String> = place.declared.passages().into_iter().filter(shared).collect();
    let mut quiet = 0;
    eventually("the queues are empty", async || {
        quiet = if amqp.filled(&queues).await.is_empty() { quiet + 1 } else { 0 };
        (quiet >= 30).then_some(())
    })
    .await;
    worker.stop().await;
}

#[tokio::test]
#[ignore = "kills a publisher of 300 events at a fail point; scripts/test --all runs it"]
async fn a_batch_that_is_repeated_after_a_kill_runs_each_event_once() {
    const EVENTS: usize = 300;
    let declared = Declared::new("types: { mail: {} }").await;
    let place = Place::new(&declared);
    let lines = (0..EVENTS).map(|n| format!("{{\"type\": \"mail\", \"id\": \"{n}\", \"payload\": {n}}}\n"));
    place.write("batch.ndjson", &lines.collect::<String>());
    let publish = || place.command(&["-o", "ndjson", "publish", "--batch", "batch.ndjson"]);
    let killed = place.run(publish().env("HATCHERY_KILL_AT", "publish.confirmed:150")).await;
    assert!(killed.killed(), "{killed:?}");
    let answered = killed.stdout.lines().count();
    assert!(answered < EVENTS, "{answered}");
    let amqp = declared.amqp().await;
    let queue = declared.processing("mail");
    eventually("every event that was reported as published is in the queue", async || {
        (usize::try_from(amqp.ready(&queue).await).unwrap() >= answered).then_some(())
    })
    .await;
    assert_eq!(place.run(&mut publish()).await.expect(0).stdout.lines().count(), EVENTS);

    let hatchery = declared.connect().await;
    let worker = hatchery.worker().stop_when_empty(true);
    let worker = crate::support::workers::Working::with(worker, "mail", |_| hatchery::Outcome::Done);
    let runs = worker.runs.clone();
    let summary = worker.ended().await.unwrap();
    let mut payloads: Vec<usize> = runs.payloads().iter().map(|payload| payload.parse().unwrap()).collect();
    payloads.sort_unstable();
    assert_eq!(payloads, (0..EVENTS).collect::<Vec<_>>());
    assert_eq!(summary.done, EVENTS as u64);
    assert!(summary.stale >= answered as u64, "{summary:?}");
}

#[tokio::test]
#[ignore = "kills a publisher of 50 events at a fail point; scripts/test --all runs it"]
async fn lines_refused_before_a_publisher_was_killed_are_in_the_rejects_file() {
    let declared = Declared::new("types: { mail: {} }").await;
    let place = Place::new(&declared);
    let refused = ["{\"type\": \"post\"}", "{broken"];
    let good = (0..50).map(|n| format!("{{\"type\": \"mail\", \"payload\": {n}}}\n"));
    place.write("batch.ndjson", &format!("{}\n{}", refused.join("\n"), good.collect::<String>()));
    let mut publish = place.command(&["publish", "--batch", "batch.ndjson", "--rejects", "rejects"]);
    let killed = place.run(publish.env("HATCHERY_KILL_AT", "publish.confirmed:25")).await;
    assert!(killed.killed(), "{killed:?}");
    let mut rejects = place.lines("rejects");
    rejects.sort();
    assert_eq!(rejects, refused.map(str::to_owned));
}

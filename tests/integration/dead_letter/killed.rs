//! A replay and a discard that are killed or stopped on their way.

use std::collections::BTreeMap;

use hatchery::Outcome;
use rstest::rstest;
use rustix::process::Signal;
use serde_json::Value;

use super::{TYPES, drained, numbered, put};
use crate::support::{
    amqp::Amqp,
    broker::eventually,
    declared::Declared,
    process::{Place, Process},
    relay::Relay,
    workers::Working,
};

const LETTERS: usize = 2_000;
/// The letters that are confirmed and not yet acknowledged at a time.
const IN_FLIGHT: usize = 1_024;

/// Waits until the broker has noticed that the connection of a replay is gone, and has returned its letters. A quorum queue
/// counts a consumer until its last delivery is settled or returned.
async fn expect_returned(amqp: &Amqp, queue: &str) {
    let is_left = async || (amqp.consumers(queue).await == 0 && amqp.ready(queue).await > 0).then_some(());
    eventually("letters are left, and nobody holds one", is_left).await;
}

#[rstest]
#[case::before_the_register("replay.confirmed:3")]
#[case::before_the_acknowledgement("replay.settled:3")]
#[case::in_the_middle_of_publishing("broker.sent:700")]
#[tokio::test]
#[ignore = "kills a replay at each of three points; scripts/test --all runs it"]
async fn a_replay_that_is_killed_and_run_again_loses_nothing(#[case] point: &str) {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "plain", LETTERS).await, Place::new(&declared));
    let mut command = place.command(&["dead-letter", "replay", "--yes"]);
    assert!(place.run(command.env("HATCHERY_KILL_AT", point)).await.killed());
    let queue = declared.dead_letters("plain");
    expect_returned(&amqp, &queue).await;
    place.letters(0, &["replay", "--yes"]).await;
    assert_eq!(amqp.ready(&queue).await, 0);
    let mut copies: BTreeMap<String, usize> = BTreeMap::new();
    for id in drained(&amqp, &declared.processing("plain")).await {
        *copies.entry(id).or_default() += 1;
    }
    assert_eq!(copies.keys().cloned().collect::<Vec<_>>(), numbered(LETTERS).collect::<Vec<_>>());
    assert!(copies.values().all(|count| *count <= 2));
    let twice = copies.values().filter(|count| **count == 2).count();
    assert!(twice <= IN_FLIGHT, "{twice} letters came twice");
}

/// The register drops the second copy of an event that has an id, and the second replay leaves its letter once it has run.
#[rstest]
#[case::before_the_register("replay.confirmed:3")]
#[case::before_the_acknowledgement("replay.settled:3")]
#[tokio::test]
#[ignore = "kills a replay at each of two points; scripts/test --all runs it"]
async fn unrouted_events_with_ids_run_once_although_their_replay_is_killed_and_run_again(#[case] point: &str) {
    let declared = Declared::new(TYPES).await;
    let (hatchery, place, amqp) = (declared.connect().await, Place::new(&declared), declared.amqp().await);
    amqp.publish_in_order("t.unrouted", "mail.now", numbered(LETTERS)).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let mut command = place.command(&["dead-letter", "replay", "--unrouted", "--yes"]);
    assert!(place.run(command.env("HATCHERY_KILL_AT", point)).await.killed());
    let queue = declared.names().unrouted();
    expect_returned(&amqp, &queue).await;
    place.letters(0, &["replay", "--unrouted", "--yes"]).await;
    worker.runs.reach(LETTERS).await;
    amqp.expect_empty(&declared.passages()).await;
    let obsolete = u64::from(amqp.ready(&queue).await);
    let runs = worker.runs.clone();
    let summary = worker.stop().await;
    let mut ran = runs.payloads();
    ran.sort();
    assert!(ran.iter().eq(&numbered(LETTERS).collect::<Vec<_>>()), "{} runs of {LETTERS} events", ran.len());
    assert!(summary.stale + obsolete > 0, "the killed replay has published nothing that it left: {summary:?}");
}

#[tokio::test]
async fn a_discard_that_is_killed_before_the_acknowledgement_keeps_its_letters() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "plain", 300).await, Place::new(&declared));
    let mut command = place.command(&["dead-letter", "discard", "--yes", "--save", "letters.ndjson"]);
    assert!(place.run(command.env("HATCHERY_KILL_AT", "discard.kept")).await.killed());
    assert!(!place.lines("letters.ndjson").is_empty());
    let queue = declared.dead_letters("plain");
    eventually("all letters are back", async || (amqp.ready(&queue).await == 300).then_some(())).await;
}

#[tokio::test]
async fn a_replay_that_is_interrupted_says_what_is_done_and_leaves_the_rest() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "plain", 500).await, Place::new(&declared));
    let replay = Process::spawn(place.command(&["dead-letter", "replay", "--yes", "--rate", "20/s"]));
    let queue = declared.processing("plain");
    eventually("it has begun", async || (amqp.ready(&queue).await > 0).then_some(())).await;
    // One signal: a second one ends it at once.
    replay.signal(Signal::INT);
    let ended = replay.ended().await.expect(5);
    assert!(ended.stderr.contains("Run it again for the rest"), "{ended:?}");
    let (done, left) = (amqp.ready(&queue).await, amqp.ready(&declared.dead_letters("plain")).await);
    assert_eq!(done + left, 500);
    assert!(ended.stdout.ends_with(&format!("Replayed: {done} letters.\n")) || done == 1, "{ended:?}");
    let rest = place.letter_ids(&[]).await;
    assert_eq!(rest, numbered(500).skip(usize::try_from(done).unwrap()).collect::<Vec<_>>());
}

/// The broker falls silent, so that the replay cannot end gently.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_that_is_ended_by_a_second_signal_says_what_is_done() {
    /// The letters whose batches may not be counted yet: four batches of a tenth of a second's letters.
    const UNDER_WAY: u32 = 4 * 2;
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "plain", 500).await, Place::new(&declared));
    let relay = Relay::to(&declared.host.amqp()).await;
    let mut command = place.command(&["-o", "json", "dead-letter", "replay", "--yes", "--rate", "20/s"]);
    command.env("AMQP_URL", &relay.url);
    let replay = Process::spawn(command);
    let (queue, left) = (declared.processing("plain"), declared.dead_letters("plain"));
    let seen = eventually("more is replayed than is under way", async || {
        Some(amqp.ready(&queue).await).filter(|seen| *seen > UNDER_WAY)
    })
    .await;
    relay.silence();
    let ended = replay.ended_by(Signal::INT).await.expect(5);
    let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let done = answer["letters"]["done"].as_u64().and_then(|done| u32::try_from(done).ok()).unwrap();
    let expected = format!("stopped; at least {done} letters replayed before. Run it again for the rest");
    assert!(ended.stderr.contains(&expected), "{ended:?}");
    assert_eq!(answer["queues"][&left]["done"], done, "{answer}");
    // The broker returns what the replay held once its connections are gone.
    relay.cut();
    eventually("all letters are in a queue", async || {
        (amqp.ready(&queue).await + amqp.ready(&left).await >= 500).then_some(())
    })
    .await;
    let replayed = amqp.ready(&queue).await;
    assert!((seen - UNDER_WAY..=replayed).contains(&done), "{done} of {replayed}, {seen} seen before: {ended:?}");
}

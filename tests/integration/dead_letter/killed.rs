//! A replay and a discard that are killed or stopped on their way.

use std::collections::BTreeMap;

use rstest::rstest;
use rustix::process::Signal;

use super::{TYPES, drained, numbered, put};
use crate::support::{
    broker::eventually,
    declared::Declared,
    process::{Place, Process},
};

const LETTERS: usize = 2_000;
/// The letters that are confirmed and not yet acknowledged at a time.
const IN_FLIGHT: usize = 1_024;

#[rstest]
#[case::before_the_register("replay.confirmed:3")]
#[case::before_the_acknowledgement("replay.settled:3")]
#[case::in_the_middle_of_publishing("broker.sent:700")]
#[tokio::test]
async fn a_replay_that_is_killed_and_run_again_loses_nothing(#[case] point: &str) {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "plain", LETTERS).await, Place::new(&declared));
    let mut command = place.command(&["dead-letter", "replay", "--yes"]);
    assert!(place.run(command.env("HATCHERY_KILL_AT", point)).await.killed());
    let queue = declared.dead_letters("plain");
    // The broker returns the letters when it notices that the connection is gone.
    eventually("letters are left", async || (amqp.ready(&queue).await > 0).then_some(())).await;
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
    // One signal: a second one ends it at once, before it has counted.
    replay.signal(Signal::INT);
    let ended = replay.ended().await.expect(5);
    assert!(ended.stderr.contains("Run it again for the rest"), "{ended:?}");
    let (done, left) = (amqp.ready(&queue).await, amqp.ready(&declared.dead_letters("plain")).await);
    assert_eq!(done + left, 500);
    assert!(ended.stdout.ends_with(&format!("Replayed: {done} letters.\n")) || done == 1, "{ended:?}");
    let rest = place.letter_ids(&[]).await;
    assert_eq!(rest, numbered(500).skip(usize::try_from(done).unwrap()).collect::<Vec<_>>());
}

//! A slow broker, and letters that somebody holds: what each verb says is what is there.

use serde_json::Value;

use super::{TYPES, drained, ids, numbered, put};
use crate::support::{
    amqp::headers,
    broker::eventually,
    declared::Declared,
    process::{Ended, Place, Process},
    relay::Relay,
};

const LETTERS: usize = 10_000;
/// The letters that a stranger holds: those at the head.
const HELD: u16 = 300;

/// A place whose commands reach the broker through a relay.
struct Slow<'a> {
    place: &'a Place<'a>,
    relay: Relay,
}

impl Slow<'_> {
    /// Runs `topology dead-letter …`, and expects this exit code.
    async fn letters(&self, code: i32, arguments: &[&str]) -> Ended {
        let mut command = self.place.command(&[&["dead-letter"], arguments].concat());
        command.env("AMQP_URL", &self.relay.url);
        command.env("RABBITMQ_MANAGEMENT_URL", self.place.declared.host.management());
        self.place.run(&mut command).await.expect(code)
    }

    /// Runs `topology dead-letter … -o json`. Returns the JSON, and whether it warns of a stranger.
    async fn json(&self, code: i32, arguments: &[&str]) -> (Value, bool) {
        let ended = self.letters(code, &[arguments, &["-o", "json"]].concat()).await;
        let answer = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        (answer, ended.stderr.contains("1 consumer reads t.dead-letter.plain"))
    }
}

/// Returns how many letters were ready, are or would be done, and were not read.
fn counts(answer: &Value) -> [u64; 3] {
    let letters = &answer["letters"];
    let done = letters["done"].as_u64().or_else(|| letters["would_be_done"].as_u64());
    [letters["ready"].as_u64(), done, letters["unread"].as_u64()]
        .map(|count| count.unwrap_or_else(|| panic!("{answer:#}")))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "reads 10,000 letters a dozen times over a slow connection; scripts/test --all runs it"]
async fn each_verb_says_what_is_there_while_a_stranger_holds_some_of_many_letters() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "plain", LETTERS).await, Place::new(&declared));
    let queue = declared.dead_letters("plain");
    let all: Vec<String> = numbered(LETTERS).collect();
    let (held, free) = all.split_at(HELD.into());
    let stranger = declared.amqp().await.hold(&queue, HELD).await;
    let left = u32::try_from(free.len()).unwrap();
    amqp.expect_untouched(&queue, left).await;
    let relay = Relay::to(&declared.host.amqp()).await;
    relay.slow(1 << 20);
    let (slow, left) = (Slow { place: &place, relay }, u64::from(left));

    let (list, is_warned) = slow.json(0, &["list"]).await;
    assert!(list["found"] == left && is_warned, "{list:#}");
    let listed = slow.letters(0, &["list", "--events", "-o", "ndjson"]).await;
    assert!(ids(listed.stdout.lines()) == free, "{} lines", listed.stdout.lines().count());
    slow.letters(0, &["show", &free[5_000]]).await;
    let held_one = slow.letters(1, &["show", &held[0]]).await;
    assert!(held_one.stderr.contains("1 consumer reads"), "{held_one:?}");
    for verb in [&["replay"][..], &["discard"]] {
        let (answer, is_warned) = slow.json(0, verb).await;
        assert!(counts(&answer) == [left, left, 0] && is_warned, "{answer:#}");
    }
    // The limit is reached, so nothing is missing.
    let (answer, _) = slow.json(0, &["replay", "--yes", "--limit", "1000"]).await;
    assert_eq!(counts(&answer), [left, 1_000, 0], "{answer:#}");
    let (answer, is_warned) = slow.json(5, &["discard", "--yes", "--save", "first", "--reference", "nobody"]).await;
    assert!(counts(&answer) == [left - 1_000, 0, 0] && is_warned, "{answer:#}");
    let (answer, is_warned) = slow.json(5, &["replay", "--yes"]).await;
    assert!(counts(&answer) == [left - 1_000, left - 1_000, 0] && is_warned, "{answer:#}");

    let (answer, is_warned) = slow.json(5, &["replay", "--yes"]).await;
    assert!(counts(&answer) == [0, 0, 0] && is_warned, "{answer:#}");
    drop(stranger);
    let back = async || (amqp.ready(&queue).await == u32::from(HELD)).then_some(());
    eventually("the stranger's letters are back", back).await;
    assert!(ids(slow.letters(0, &["list", "--events", "-o", "ndjson"]).await.stdout.lines()) == held);
    let (answer, is_warned) = slow.json(0, &["discard", "--yes", "--save", "saved"]).await;
    assert!(counts(&answer) == [u64::from(HELD), u64::from(HELD), 0] && !is_warned, "{answer:#}");
    assert_eq!(place.lines("saved").len(), usize::from(HELD));
    let mut replayed = drained(&amqp, &declared.processing("plain")).await;
    replayed.sort();
    assert!(replayed == free, "{} events", replayed.len());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "replays 50 letters a second; scripts/test --all runs it"]
async fn letters_that_a_stranger_takes_during_a_replay_are_said_to_be_unread() {
    const LETTERS: usize = 1_000;
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "plain", LETTERS).await, Place::new(&declared));
    let queue = declared.dead_letters("plain");
    let arguments = ["dead-letter", "replay", "--yes", "--rate", "50/s", "--type", "plain", "-o", "json"];
    let replay = Process::spawn(place.command(&arguments));
    // A sweep reads a few rounds ahead at most. So most letters are ready.
    let processing = declared.processing("plain");
    eventually("the replay is under way", async || (amqp.ready(&processing).await >= 50).then_some(())).await;
    let stranger = declared.amqp().await.hold(&queue, HELD).await;
    let ended = replay.ended().await.expect(5);
    let answer = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let [ready, done, unread] = counts(&answer);
    assert_eq!((ready, done + unread, unread), (LETTERS as u64, LETTERS as u64, HELD.into()), "{answer:#}");
    let unread = format!("300 letters of {queue} were ready and could not be read: others hold them");
    assert!(ended.stderr.contains(&unread), "{ended:?}");
    assert_eq!(u64::from(amqp.ready(&processing).await), done);
    drop(stranger);
    let back = async || (amqp.ready(&queue).await == u32::from(HELD)).then_some(());
    eventually("the stranger's letters are back", back).await;
}

/// An answer of the broker to a call stands behind the bodies that it has sent before.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "reads large letters over a slow connection; scripts/test --all runs it"]
async fn large_letters_over_a_slow_connection_are_all_read() {
    const LARGE: usize = 5;
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (declared.amqp().await, Place::new(&declared));
    let body = vec![b'x'; 6 << 20];
    for id in numbered(LARGE) {
        let properties = headers(&[]).with_message_id(id.as_str().into());
        amqp.publish("t.dead-letter", "plain.dead-letter", properties, &body).await;
    }
    let relay = Relay::to(&declared.host.amqp()).await;
    relay.slow(2 << 20);
    let slow = Slow { place: &place, relay };
    let (list, _) = slow.json(0, &["list"]).await;
    assert_eq!(list["found"], LARGE, "{list:#}");
    let (answer, _) = slow.json(0, &["discard", "--yes", "--save", "saved"]).await;
    assert_eq!(counts(&answer), [5, 5, 0], "{answer:#}");
    assert_eq!(amqp.ready(&declared.dead_letters("plain")).await, 0);
}

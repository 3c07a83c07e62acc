//! Replaying letters.

use hatchery::{NewEvent, Outcome};
use serde_json::{Value, json};

use super::{TYPES, numbered, put};
use crate::support::{
    amqp::{headers, long, shown},
    broker::eventually,
    declared::{Declared, publish},
    process::Place,
    workers::Working,
};

#[tokio::test]
async fn a_replayed_event_begins_afresh_and_keeps_its_history() {
    let declared = Declared::new("types: { mail: { retry: { delays: [50ms], max-attempts: 2 } } }\n").await;
    let (hatchery, place, amqp) = (declared.connect().await, Place::new(&declared), declared.amqp().await);
    publish(&hatchery, NewEvent::new("mail", "1").id("a").correlation_id("c")).await;
    let queue = declared.dead_letters("mail");
    for round in 0..2_u64 {
        let worker = Working::start(&hatchery, "mail", |_| Outcome::retry("connection refused"));
        let seen = worker.runs.reach(2).await;
        assert_eq!((seen[0].event.attempts, seen[1].event.attempts), (0, 1));
        eventually("a dead letter", async || (amqp.ready(&queue).await == 1).then_some(())).await;
        worker.stop().await;
        let letter = place.letters_json(&["list", "--events"]).await["events"][0].clone();
        assert_eq!((letter["attempts"].as_u64(), letter["replays"].as_u64()), (Some(2), Some(round)), "{letter}");
        place.letters(0, &["replay", "--yes"]).await;
        assert_eq!(amqp.ready(&queue).await, 0);
    }
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let event = worker.runs.reach(1).await.remove(0).event;
    worker.stop().await;
    assert_eq!((event.id.as_str(), event.attempts, event.correlation_id.as_deref()), ("a", 0, Some("c")));
    assert!(event.first_failure < event.last_failure, "{event:?}");
    let reason = event.reason.unwrap();
    assert!(reason.starts_with("replay: asked_at=") && reason.contains("connection refused"), "{reason}");
}

#[tokio::test]
#[ignore = "runs many replays of 300 letters; scripts/test --all runs it"]
async fn a_selection_is_replayed_and_the_other_letters_stay_in_their_order() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (declared.amqp().await, Place::new(&declared));
    for id in numbered(300) {
        let cause = if id.ends_with('3') { "timeout" } else { "refused" };
        let failure = long(format!("2026-06-01T09:00:00.000Z {cause}"));
        let properties = headers(&[("last_failure", failure)]).with_message_id(id.as_str().into());
        amqp.publish("t.dead-letter", "plain.dead-letter", properties, b"{}").await;
    }
    let (some, others): (Vec<_>, Vec<_>) = numbered(300).partition(|id| id.ends_with('3'));
    let dry = place.letters(0, &["replay", "--reason", "timeout"]).await;
    assert!(dry.stdout.ends_with("Dry run: would replay 30 letters. --yes does it.\n"), "{dry:?}");
    assert_eq!(place.letter_ids(&[]).await.len(), 300);
    place.letters(0, &["replay", "--reason", "timeout", "--yes", "--rate", "200/s"]).await;
    assert_eq!(place.letter_ids(&[]).await, others);
    let mut replayed = super::drained(&amqp, &declared.processing("plain")).await;
    replayed.sort();
    assert_eq!(replayed, some);
}

/// RabbitMQ forgets the acknowledgements that a channel holds back when the channel closes.
#[tokio::test]
#[ignore = "replays 3,000 letters; scripts/test --all runs it"]
async fn no_letter_comes_back_after_a_replay() {
    const LETTERS: usize = 3_000;
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "plain", LETTERS).await, Place::new(&declared));
    place.letters(0, &["replay", "--yes", "--limit", "1500"]).await;
    let left: Vec<_> = numbered(LETTERS).skip(1_500).collect();
    assert_eq!(place.letter_ids(&[]).await, left);
    place.letters(0, &["replay", "--yes"]).await;
    assert!(place.letter_ids(&[]).await.is_empty());
    let mut replayed = super::drained(&amqp, &declared.processing("plain")).await;
    replayed.sort();
    assert!(replayed.iter().eq(&numbered(LETTERS).collect::<Vec<_>>()), "{} letters were replayed", replayed.len());
}

#[tokio::test]
async fn a_message_that_no_queue_took_is_replayed_once_its_type_is_in_the_file() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (declared.amqp().await, Place::new(&declared));
    for event_type in ["nobody", "plain"] {
        amqp.publish("t.unrouted", &format!("{event_type}.now"), headers(&[]).with_message_id(event_type.into()), b"1")
            .await;
    }
    let list = place.letters_json(&["list", "--unrouted"]).await;
    assert_eq!(list["groups"][0]["failure"], "no queue takes nobody.now", "{list}");
    let ended = place.letters(0, &["replay", "--unrouted", "--yes"]).await;
    assert!(
        ended.stdout.contains("Left: 1 letter, not events") && ended.stdout.ends_with("Replayed: 1 letter.\n"),
        "{ended:?}"
    );
    let message = amqp.take(&declared.processing("plain")).await;
    assert!(shown(&message, "replays").is_some_and(|replays| replays.contains('1')), "{message:?}");
    assert_eq!(place.letter_ids(&["--unrouted"]).await, ["nobody"]);
}

/// Programs without our library ask for a delay by the routing key alone.
#[tokio::test]
async fn a_message_that_no_queue_took_keeps_the_delay_of_its_routing_key() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (declared.amqp().await, Place::new(&declared));
    amqp.publish("t.unrouted", "plain.1s", headers(&[]).with_message_id("late".into()), b"1").await;
    place.letters(0, &["replay", "--unrouted", "--id", "late", "--yes"]).await;
    let message = eventually("it is due", async || amqp.get(&declared.processing("plain")).await).await;
    assert!(shown(&message, "nbf").is_some(), "{message:?}");
}

#[tokio::test]
async fn a_letter_that_is_named_and_not_there_is_an_error_after_the_answer() {
    let declared = Declared::new(TYPES).await;
    let (_, place) = (put(&declared, "mail", 1).await, Place::new(&declared));
    for (arguments, expected) in [
        (
            &["replay", "--id", "x"][..],
            json!({ "dry_run": true, "letters": { "would_be_done": 0, "not_selected": 1 } }),
        ),
        (&["replay", "--id", "x", "--yes"], json!({ "dry_run": false, "letters": { "done": 0, "not_selected": 1 } })),
        (&["discard", "--id", "x"], json!({ "dry_run": true, "letters": { "would_be_done": 0, "not_selected": 1 } })),
    ] {
        let ended = place.letters(1, &[arguments, &["-o", "json"]].concat()).await;
        assert!(ended.stderr.contains("no letter with the id x matches"), "{ended:?}");
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        assert_eq!(answer["dry_run"], expected["dry_run"], "{answer}");
        for (count, value) in expected["letters"].as_object().unwrap() {
            assert_eq!(&answer["letters"][count], value, "{answer}");
        }
    }
    let ended = place.letters(1, &["show", "x", "-o", "json"]).await;
    assert!(ended.stderr.contains("there is no such letter"), "{ended:?}");
    assert_eq!(serde_json::from_str::<Value>(&ended.stdout).unwrap(), json!({ "found": 0, "letters": [] }));
    assert_eq!(place.letter_ids(&[]).await, ["n00000"]);
}

#[tokio::test]
async fn a_replay_at_another_time_waits_until_then() {
    let declared = Declared::new(TYPES).await;
    let (amqp, place) = (put(&declared, "mail", 2).await, Place::new(&declared));
    place.letters(0, &["replay", "--yes", "--id", "n00001", "--delay", "1s"]).await;
    assert_eq!(place.letter_ids(&[]).await, ["n00000"]);
    let message = eventually("it is due", async || amqp.get(&declared.processing("mail")).await).await;
    assert!(shown(&message, "nbf").is_some(), "{message:?}");
}

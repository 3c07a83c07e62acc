//! Dead letters, with a broker and a register in memory.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{FutureExt as _, TryStreamExt as _};
use hatchery::{
    BrokerError, CancellationToken, Event, Filter, State,
    internals::{
        ports::Broker as _,
        register::{ClaimAnswer, End, Stage},
        wire::{self, Incoming, Properties, REPLAYS, Value},
    },
};

use super::*;
use crate::events::World;

const AT_ONCE: Patience<'_> = Patience { limit: Duration::ZERO, waiting: &|_| {} };

impl World {
    fn queue(&self, event_type: &str) -> LetterQueue {
        DeadLetters(self.events.clone()).queues(&[event_type.to_owned()], Vec::new()).expect("a type").remove(0)
    }

    /// Puts the last copy of an event into the dead-letter queue of its type.
    fn bury(&self, event: &Event) {
        let reason = Some("given up: attempt=3 error=\"refused\"".to_owned());
        let mut letter = event.clone();
        (letter.attempts, letter.reason) = (3, reason);
        letter.last_failure = Some("1970-01-12T13:46:40.000Z refused".into());
        let routing_key = format!("{}.dead-letter", event.event_type);
        let message = Incoming { routing_key, properties: wire::encode(&letter), body: event.payload.clone() };
        self.broker.put(&self.queue(event.event_type.as_str()).name, message);
    }

    /// Puts a dead letter of this type into its queue, as the register knows it.
    async fn dead_letter(&self, event_type: &str, reference: &str, id: &str, slot: &str) -> Event {
        let event = self.put(event_type, reference, id, slot, false).await;
        let letter = self.fail(&event, Stage::DeadLetter, 3).await;
        self.bury(&letter);
        letter
    }

    async fn replay(&self, event_type: &str, bounds: Bounds) -> Swept {
        let (selection, stop) = (Selection::default(), CancellationToken::new());
        let letters = DeadLetters(self.events.clone());
        let queue = &self.queue(event_type);
        let sweep = Sweep { queue, selection: &selection, bounds, patience: AT_ONCE, stop: &stop, progress: &|_| {} };
        letters.replay(sweep, Due::AsBefore).await
    }

    /// Returns the ids of the letters in their queue, and the standing of each.
    async fn letters(&self, event_type: &str) -> Vec<(String, &'static str)> {
        let mut found = Vec::new();
        let each = |letter: Letter, standing: Standing| {
            found.push((letter.id().unwrap_or_default().to_owned(), standing.word()));
        };
        let letters = DeadLetters(self.events.clone());
        letters.read(&self.queue(event_type), &Selection::default(), AT_ONCE, each).await.expect("it answers");
        found
    }
}

fn is(tally: Tally, done: u64, obsolete: u64, unreadable: u64) {
    assert_eq!((tally.done, tally.obsolete, tally.unreadable), (done, obsolete, unreadable));
}

#[tokio::test]
async fn a_replay_publishes_then_settles_then_acknowledges() {
    let world = World::new();
    world.dead_letter("import", "1234", "a", "i").await;
    let before = world.script.diary.entries().len();
    is(world.replay("import", Bounds::default()).await.tally, 1, 0, 0);
    let diary = world.script.diary.entries();
    let told: Vec<&str> = diary[before..].iter().map(|entry| entry.split(' ').next().unwrap_or_default()).collect();
    let place = |word: &str| told.iter().position(|entry| *entry == word).expect(word);
    assert!(place("publish") < place("settle") && place("settle") < place("acknowledge"), "{told:?}");
}

#[tokio::test]
async fn a_replayed_event_has_no_attempts_and_the_next_generation() {
    let world = World::new();
    let letter = world.dead_letter("import", "1234", "a", "i").await;
    world.replay("import", Bounds::default()).await;
    let (_, copy) = world.sent().pop().expect("it was published");
    assert_eq!((copy.attempts, copy.stamp), (0, letter.stamp.next()));
    assert_eq!(copy.properties.headers.get(REPLAYS), Some(&Value::I64(1)));
    assert_eq!(copy.last_failure.as_deref(), Some("1970-01-12T13:46:40.000Z refused"));
    assert_eq!(world.letters("import").await, []);
    let found: Vec<_> = world.events.search(&Filter::default()).try_collect().await.expect("it answers");
    assert_eq!(found[0].state, State::Waiting);
}

#[tokio::test]
async fn obsolete_letters_and_poison_stay_in_their_order() {
    let world = World::new();
    let mut a = world.dead_letter("mail", "", "a", "e:a").await;
    world.dead_letter("mail", "", "b", "e:b").await;
    a.stamp = a.stamp.next();
    world.run(&a, End::Finished).await;
    let broken = Properties {
        message_id: Some("c".into()),
        headers: [("nbf".to_owned(), Value::Bool(true))].into(),
        ..Properties::default()
    };
    let message = Incoming { routing_key: "mail.dead-letter".into(), properties: broken, body: "".into() };
    world.broker.put(&world.queue("mail").name, message);
    let all = [("a".to_owned(), "obsolete"), ("b".to_owned(), "open"), ("c".to_owned(), "unreadable")];
    assert_eq!(world.letters("mail").await, all);
    is(world.replay("mail", Bounds::default()).await.tally, 1, 1, 1);
    assert_eq!(world.letters("mail").await, [all[0].clone(), all[2].clone()]);
}

#[tokio::test]
async fn a_letter_that_a_newer_event_replaced_is_left() {
    let world = World::new();
    world.dead_letter("import", "1234", "a", "i").await;
    world.put("import", "1234", "b", "i", false).await;
    is(world.replay("import", Bounds::default()).await.tally, 0, 1, 0);
    assert_eq!(world.letters("import").await, [("a".to_owned(), "obsolete")]);
}

#[tokio::test]
async fn a_letter_whose_copy_is_not_confirmed_stays_in_the_queue() {
    let world = World::new();
    for id in ["a", "b"] {
        world.dead_letter("mail", "", id, &format!("e:{id}")).await;
    }
    world.refuse_one();
    let swept = world.replay("mail", Bounds::default()).await;
    is(swept.tally, 1, 0, 0);
    assert!(matches!(swept.error, Some(DeadLettersError::Publish(_))), "{swept:?}");
    assert_eq!(world.letters("mail").await, [("a".to_owned(), "open")]);
    is(world.replay("mail", Bounds::default()).await.tally, 1, 0, 0);
}

#[tokio::test]
async fn a_replay_ends_at_its_limit_and_at_the_letters_of_its_beginning() {
    let world = World::new();
    for n in 0..600 {
        world.bury(&world.put("plain", "", &format!("{n:03}"), &format!("e:{n:03}"), false).await);
    }
    is(world.replay("plain", Bounds { limit: Some(500), rate: None }).await.tally, 500, 0, 0);
    let left: Vec<String> = world.letters("plain").await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(left, (500..600).map(|n| format!("{n:03}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn only_one_look_at_a_queue_is_open() {
    let world = World::new();
    world.dead_letter("mail", "", "a", "e:a").await;
    let queue = world.queue("mail").name;
    let look = world.broker.look(&queue).await.expect("nobody looks");
    let locked = world.broker.look(&queue).await.err();
    assert!(matches!(locked, Some(BrokerError::Locked { .. })));
    let swept = world.replay("mail", Bounds::default()).await;
    assert!(matches!(swept.error, Some(DeadLettersError::Broker(BrokerError::Locked { .. }))), "{swept:?}");
    look.close().await.expect("closed");
    is(world.replay("mail", Bounds::default()).await.tally, 1, 0, 0);
}

#[tokio::test]
async fn a_discarded_letter_is_kept_first_and_its_event_is_over() {
    let world = World::new();
    let letter = world.dead_letter("import", "1234", "a", "i").await;
    let discard = async |keep: Keep| {
        let (letters, stop) = (DeadLetters(world.events.clone()), CancellationToken::new());
        let (queue, selection, bounds) = (&world.queue("import"), &Selection::default(), Bounds::default());
        let sweep = Sweep { queue, selection, bounds, patience: AT_ONCE, stop: &stop, progress: &|_| {} };
        letters.discard(sweep, keep).await
    };
    let full = discard(Arc::new(|_| Err(std::io::ErrorKind::StorageFull.into()))).await;
    assert!(matches!(full.error, Some(DeadLettersError::File(_))), "{full:?}");
    assert_eq!(world.letters("import").await, [("a".to_owned(), "open")]);
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let keep: Keep = Arc::new(move |letters| {
        keep.lock().expect("no panic").extend(letters.iter().filter_map(|letter| letter.id().map(str::to_owned)));
        Ok(())
    });
    is(discard(keep).await.tally, 1, 0, 0);
    assert_eq!(*kept.lock().expect("no panic"), ["a"]);
    assert_eq!(world.letters("import").await, []);
    assert_eq!(world.claim(&letter).await, ClaimAnswer::Stale);
}

#[tokio::test]
async fn letters_that_somebody_takes_meanwhile_are_counted_as_unread() {
    let world = World::new();
    for n in 0..600 {
        world.bury(&world.put("plain", "", &format!("{n:03}"), &format!("e:{n:03}"), false).await);
    }
    let (letters, stop) = (DeadLetters(world.events.clone()), CancellationToken::new());
    let (queue, selection, bounds) = (&world.queue("plain"), &Selection::default(), Bounds::default());
    let sweep = Sweep { queue, selection, bounds, patience: AT_ONCE, stop: &stop, progress: &|_| {} };
    let (broker, name, taken) = (Arc::clone(&world.broker), queue.name.clone(), Arc::new(Mutex::new(Vec::new())));
    let held = Arc::clone(&taken);
    let keep: Keep = Arc::new(move |_| {
        while let Some(Ok(Some(delivery))) = broker.take(&name).now_or_never() {
            held.lock().expect("no panic").push(delivery.receipt);
        }
        Ok(())
    });
    let swept = letters.discard(sweep, keep).await;
    let unread = u64::try_from(taken.lock().expect("no panic").len()).expect("few");
    assert_eq!((swept.tally.done, swept.tally.unread), (600 - unread, unread), "{swept:?}");
    assert!(unread > 0, "nothing was taken");
}

#[tokio::test]
async fn a_letter_of_another_type_is_replayed_as_what_it_is() {
    let world = World::new();
    let mut event = world.put("plain", "", "a", "e:a", false).await;
    event.attempts = 3;
    let incoming = Incoming {
        routing_key: "plain.dead-letter".to_owned(),
        properties: wire::encode(&event),
        body: event.payload.clone(),
    };
    // A binding `#` has brought a copy.
    world.broker.put(&world.queue("mail").name, incoming);
    is(world.replay("mail", Bounds::default()).await.tally, 1, 0, 0);
    let (route, _) = world.sent().pop().expect("it was published");
    assert!(route.starts_with("t.scheduler plain."), "{route}");
}

//! Another time for events that wait.

use bytes::Bytes;

use super::*;
use crate::{
    domain::{
        register::{
            Terms,
            index::{Find, Found, Shown, TypeCounts},
        },
        words::EventType,
    },
    ports::{Index, RegisterError},
};

#[rstest]
// Into a slot of its own date, where the former copy is done with.
#[case("import", "i", true, "q:1000100000")]
#[case("import", "d:1001000000", true, "q:1000100000")]
#[case("import", "q:1001000000", true, "q:1000100000")]
// Whatever its date.
#[case("newest", "d", false, "d")]
#[case("mail", "e:a", false, "e:a")]
#[tokio::test]
async fn a_reschedule_replaces_the_former_copy(
    #[case] event_type: &str,
    #[case] slot: &str,
    #[case] is_new: bool,
    #[case] expected: &str,
) {
    let world = World::new();
    let former = world.put(event_type, "1234", "a", slot, true).await;
    let former = world.fail(&former, Stage::Retry, 2).await;
    let at = second(1_000_100);
    let moved = world.events.reschedule(&EventSelector::id(event_type, "a").of("1234"), at).await.expect("it answers");
    assert!(matches!(&moved[..], [(_, MoveOutcome::Done)]), "{moved:?}");
    let sent = world.sent();
    let [(way, copy)] = &sent[..] else { panic!("{sent:?}") };
    assert!(way.starts_with(&format!("t.scheduler {event_type}.250ms-19.")), "{way}");
    assert_eq!((copy.stamp.slot.to_string().as_str(), copy.nbf, copy.attempts), (expected, Some(at), 0));
    assert_eq!((copy.id.as_str(), &copy.payload[..]), ("a", &b"payload of a"[..]));
    assert_eq!(copy.stamp.generation, if is_new { 0 } else { 2 });
    assert_eq!(copy.stamp.version > former.stamp.version, is_new);
    assert!(copy.reason.as_deref().is_some_and(|reason| reason.contains("was=\"attempt=2\"")), "{copy:?}");

    let found = world.found(&Filter::default()).await;
    let [event] = &found[..] else { panic!("{found:?}") };
    assert_eq!((event.due, event.attempts, event.state, event.id.as_deref()), (Some(at), 0, State::Waiting, Some("a")));
    assert_eq!(event.copy.as_ref(), Some(&copy.stamp));
    assert_eq!(world.claim(&former).await, ClaimAnswer::Stale);
    assert!(matches!(world.claim(copy).await, ClaimAnswer::Run { .. }));
}

#[tokio::test]
async fn a_rescheduled_event_can_be_rescheduled_again() {
    let world = World::new();
    world.put("import", "1234", "a", "i", true).await;
    for at in [1_000_300, 1_000_200] {
        let moved = world.events.reschedule(&of_1234(), second(at)).await.expect("it answers");
        assert!(matches!(&moved[..], [(_, MoveOutcome::Done)]), "{moved:?}");
    }
    let (sent, found) = (world.sent(), world.found(&Filter::default()).await);
    assert_eq!((sent.len(), found.len(), found[0].due), (2, 1, Some(second(1_000_200))));
    assert_eq!(world.claim(&sent[0].1).await, ClaimAnswer::Stale);
    assert!(matches!(world.claim(&sent[1].1).await, ClaimAnswer::Run { .. }));
}

/// An index that shows no whole reference.
struct OneByOne(Arc<MemoryRegister>);

#[async_trait]
impl Index for OneByOne {
    async fn find(&self, find: &Find) -> Result<Found, RegisterError> {
        self.0.find(find).await
    }

    async fn count(&self, types: &[EventType]) -> Result<Vec<TypeCounts>, RegisterError> {
        self.0.count(types).await
    }

    async fn look(&self, _: &[Subject]) -> Result<Vec<Vec<Shown>>, RegisterError> {
        unreachable!("a reference may have very many dates")
    }

    async fn look_at(&self, batch: &[(Subject, DedupSlot)]) -> Result<Vec<Option<Shown>>, RegisterError> {
        self.0.look_at(batch).await
    }

    async fn cancelled_runs(&self, _: &[(Subject, DedupSlot, Terms)]) -> Result<Vec<bool>, RegisterError> {
        unreachable!("nobody waits")
    }

    async fn kept(&self, batch: &[(Subject, DedupSlot)]) -> Result<Vec<Option<Bytes>>, RegisterError> {
        self.0.kept(batch).await
    }
}

#[tokio::test]
async fn a_reschedule_of_one_date_reads_no_other() {
    let world = World::new();
    let slots = ["d:1001000000", "d:1002000000", "q:1003000000", "q:1003000001"];
    for slot in slots {
        world.put("import", "1234", slot, slot, true).await;
    }
    let index = Arc::new(OneByOne(world.register.clone()));
    let World { topology, broker, register, clock, .. } = &world;
    let events = Events::new(topology.clone(), broker.clone(), register.clone(), index, clock.clone());
    let moved = events.reschedule(&of_1234().at(second(1_001_000)), second(1_003_000)).await.expect("it answers");
    assert!(matches!(&moved[..], [(_, MoveOutcome::Done)]), "{moved:?}");
    assert_eq!(world.sent()[0].1.stamp.slot, DedupSlot::RequeuedAt(1_003_000_002));
}

#[rstest]
#[case("import", "i")]
#[case("newest", "d")]
#[case("mail", "e:a")]
#[tokio::test]
async fn run_now_is_the_next_generation_of_the_same_event(#[case] event_type: &str, #[case] slot: &str) {
    let world = World::new();
    let former = world.put(event_type, "1234", "a", slot, true).await;
    let former = world.fail(&former, Stage::Retry, 2).await;
    let moved = world.events.run_now(&EventSelector::id(event_type, "a").of("1234")).await.expect("it answers");
    assert!(matches!(&moved[..], [(_, MoveOutcome::Done)]), "{moved:?}");
    let sent = world.sent();
    let [(way, copy)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(way, &format!("t.scheduler {event_type}.now"));
    assert_eq!((copy.nbf, copy.attempts, &copy.stamp), (None, 2, &former.stamp.next()));
    assert_eq!(world.claim(&former).await, ClaimAnswer::Stale);
    assert!(matches!(world.claim(copy).await, ClaimAnswer::Run { .. }));
}

/// Its former copies come at their old dates, the last of them ten days later: what is open is remembered for one day, and a
/// run for an hour.
#[rstest]
#[case("import", "i")]
#[case("import", "d:1864000000")]
#[case("import", "q:1864000000")]
#[case("newest", "d")]
#[case("mail", "e:a")]
#[tokio::test]
async fn an_event_that_was_brought_forward_does_not_run_again_at_its_old_date(
    #[case] event_type: &str,
    #[case] slot: &str,
    #[values(true, false)] now: bool,
) {
    let world = World::new();
    let old = second(1_864_000);
    let former = world.put_at(old, event_type, "1234", "a", slot, true).await;
    let which = EventSelector::id(event_type, "a").of("1234");
    // Twice, so that the date that is shown is not the old one any more.
    for at in [second(1_036_000), second(1_000_100)] {
        world.events.reschedule(&which, at).await.expect("it answers");
    }
    if now {
        world.events.run_now(&which).await.expect("it answers");
    } else {
        world.clock.0.store(1_000_100, Ordering::SeqCst);
    }
    let mut sent: Vec<Event> = world.sent().into_iter().map(|(_, copy)| copy).collect();
    let last = sent.pop().expect("it was moved");
    world.run(&last, End::Finished).await;
    for copy in sent.into_iter().chain([former]) {
        world.clock.0.fetch_max(copy.due().as_second(), Ordering::SeqCst);
        assert_eq!(world.claim(&copy).await, ClaimAnswer::Stale, "{copy:?}");
    }
}

#[tokio::test]
async fn an_event_without_a_kept_payload_can_only_be_delayed() {
    let world = World::new();
    let event = world.put("import", "1234", "a", "d:1001000000", false).await;
    let earlier = world.events.reschedule(&of_1234(), second(1_000_500)).await.expect("it answers");
    assert!(matches!(&earlier[..], [(_, MoveOutcome::NotKept(PayloadNotKept::Earlier))]), "{earlier:?}");
    let now = world.events.run_now(&of_1234()).await.expect("it answers");
    assert!(matches!(&now[..], [(_, MoveOutcome::NotKept(PayloadNotKept::Now))]), "{now:?}");
    let later = world.events.reschedule(&of_1234(), second(1_002_000)).await.expect("it answers");
    assert!(matches!(&later[..], [(_, MoveOutcome::Done)]), "{later:?}");
    assert!(world.sent().is_empty());
    assert_eq!(world.found(&Filter::default()).await[0].due, Some(second(1_002_000)));
    assert_eq!(world.claim(&event).await, ClaimAnswer::Later(second(1_002_000)));
}

#[tokio::test]
async fn a_dead_letter_runs_again_only_with_a_kept_payload() {
    let world = World::new();
    for (id, keep) in [("kept", true), ("lost", false)] {
        let event = world.put("mail", "", id, &format!("e:{id}"), keep).await;
        world.fail(&event, Stage::DeadLetter, 6).await;
    }
    assert_eq!(world.ids(&Filter::default().state(State::DeadLetter)).await, ["kept", "lost"]);
    let found = world.found(&Filter::default()).await;
    for at in [None, Some(world.at(900))] {
        let missing = [None, Some(PayloadNotKept::DeadLetter)];
        assert_eq!(world.events.not_kept(&found, at).await.expect("it answers"), missing);
    }
    let lost = world.events.reschedule(&EventSelector::id("mail", "lost"), world.at(900)).await.expect("it answers");
    assert!(matches!(&lost[..], [(_, MoveOutcome::NotKept(PayloadNotKept::DeadLetter))]), "{lost:?}");
    let kept = world.events.run_now(&EventSelector::id("mail", "kept")).await.expect("it answers");
    assert!(matches!(&kept[..], [(_, MoveOutcome::Done)]), "{kept:?}");
    assert_eq!(world.sent()[0].1.attempts, 6);
}

#[tokio::test]
async fn a_kept_message_of_another_copy_is_not_sent() {
    let world = World::new();
    let event = world.put("import", "1234", "a", "i", true).await;
    // A newer one, of which the index has not heard yet.
    world.register.with_shard(|shard| {
        for slot in shard.slots.values_mut() {
            slot.newest += 1;
        }
    });
    let moved = world.events.run_now(&of_1234()).await.expect("it answers");
    assert!(matches!(&moved[..], [(_, MoveOutcome::NotKept(_))]), "{moved:?}");
    assert_eq!(world.claim(&event).await, ClaimAnswer::Replaced);
}

#[tokio::test]
async fn an_unconfirmed_move_keeps_the_former_copy() {
    let world = World::new();
    let mut events = Vec::new();
    for n in 0..3 {
        events.push(world.put("import", &n.to_string(), &n.to_string(), "i", true).await);
    }
    world.refuse_one();
    let all: Vec<Result<_, _>> = {
        use futures_util::StreamExt as _;
        world.events.reschedule_all(&Filter::default(), second(1_000_900)).collect().await
    };
    assert!(matches!(&all[..], [Err(EventsError::Publish(_))]), "{all:?}");
    let mut stale = 0;
    for event in &events {
        stale += usize::from(world.claim(event).await == ClaimAnswer::Stale);
    }
    assert_eq!((stale, world.sent().len()), (2, 2));
}

#[tokio::test]
async fn every_event_that_a_filter_finds_is_moved_once() {
    let world = World::new();
    for n in 0..1_000 {
        world.put("import", &n.to_string(), &n.to_string(), &format!("d:{}", 1_000_100_000 + n), true).await;
    }
    // Into the midst of what is looked through.
    let at = Timestamp::from_millisecond(1_000_100_800).expect("a time");
    let moved: Vec<_> = world.events.reschedule_all(&Filter::default(), at).try_collect().await.expect("it answers");
    assert_eq!((moved.len(), world.sent().len()), (999, 999));
    assert!(moved.iter().all(|(_, moved)| *moved == MoveOutcome::Done));
    assert!(world.found(&Filter::default()).await.iter().all(|event| event.due == Some(at)));
    let moved: Vec<_> = world.events.run_now_all(&Filter::default()).try_collect().await.expect("it answers");
    assert_eq!((moved.len(), world.sent().len()), (1_000, 1_999));
}

/// Returns the waiting events, each with its due time in ms.
async fn times(world: &World) -> Vec<(String, i64)> {
    let found = world.found(&Filter::default()).await;
    found.into_iter().map(|event| (event.id.expect("known"), event.due.expect("known").as_millisecond())).collect()
}

#[tokio::test]
async fn events_of_a_reference_that_move_to_one_time_all_run() {
    let world = World::new();
    for (id, slot) in [("late", "d:1003000000"), ("early", "d:1001000000"), ("now", "i")] {
        world.put("import", "1234", id, slot, true).await;
    }
    world.put("import", "5678", "other", "i", true).await;
    let at = second(1_002_000);
    world.events.reschedule(&of_1234(), at).await.expect("it answers");
    world.events.reschedule(&EventSelector::reference("import", "5678"), at).await.expect("it answers");
    let from = |n: i64| 1_002_000_000 + n;
    let named = |id: &str, n: i64| (id.to_owned(), from(n));
    let mut expected = [named("now", 0), named("early", 1), named("late", 2), named("other", 0)];
    expected.sort();
    let sorted = async || {
        let mut times = times(&world).await;
        times.sort();
        times
    };
    assert_eq!(sorted().await, expected);
    // Each stays where it is when it is asked for again, and another one gets a place of its own.
    world.put("import", "1234", "another", "d:1001000000", true).await;
    let again = world.events.reschedule(&of_1234(), at).await.expect("it answers");
    assert!(again.len() == 4 && again.iter().all(|(_, moved)| *moved == MoveOutcome::Done), "{again:?}");
    assert_eq!(world.sent().len(), 5);
    assert!(sorted().await.contains(&named("another", 3)));
    for (_, event) in world.sent() {
        assert!(matches!(world.claim(&event).await, ClaimAnswer::Run { .. }), "{event:?}");
        world.register.with_shard(|shard| shard.leases.clear());
    }
}

#[tokio::test]
async fn a_filter_that_finds_many_dates_of_a_reference_loses_none_of_them() {
    let world = World::new();
    for n in 0..600 {
        world.put("import", "1234", &format!("{n:03}"), &format!("d:{}", 1_000_100_000 + n), true).await;
    }
    // Some of them are found again where they have been brought.
    let at = Timestamp::from_millisecond(1_000_100_300).expect("a time");
    let moved: Vec<_> = world.events.reschedule_all(&Filter::default(), at).try_collect().await.expect("it answers");
    assert!(moved.iter().all(|(_, moved)| *moved == MoveOutcome::Done));
    let times = times(&world).await;
    assert_eq!(times.len(), 600);
    let distinct: std::collections::BTreeSet<i64> = times.iter().map(|(_, at)| *at).collect();
    // One was due at that time already, and keeps its slot beside the first one that comes.
    assert_eq!((moved.len(), distinct.len()), (599, 599));
    assert!(*distinct.first().expect("some") >= 1_000_100_300);
}

/// One event of a reference is published after the other when they run now.
#[tokio::test]
async fn a_move_sends_no_copy_long_after_its_reserve() {
    let world = World::new();
    for (id, slot) in [("a", "d:1001000000"), ("b", "d:1002000000"), ("c", "d:1003000000")] {
        world.put("import", "1234", id, slot, true).await;
    }
    let remembered = world.topology.types["import"].terms(&world.topology.redis).dedup_retention;
    let a_third = i64::try_from(remembered.as_secs() / 3).expect("some hours");
    let clock = world.clock.clone();
    world.on_publish(move |_| {
        clock.0.fetch_add(a_third, Ordering::SeqCst);
        Ok(())
    });
    let told = world.events.run_now(&of_1234()).await;
    assert!(matches!(told, Err(EventsError::Publish(PublishError::Timeout))), "{told:?}");
    assert_eq!(world.sent().len(), 2);
    // The events whose copies were not sent wait as before.
    assert_eq!(times(&world).await.last(), Some(&("c".to_owned(), 1_003_000_000)));
}

#[tokio::test]
async fn an_interrupted_reschedule_is_repaired_by_the_next_one() {
    let world = World::new();
    world.put("import", "1234", "first", "d:1001000000", true).await;
    let second_copy = world.put("import", "1234", "second", "d:1001500000", true).await;
    let at = second(1_002_000);
    world.events.reschedule(&of_1234(), at).await.expect("it answers");
    // As if the former copy of the second had not been settled.
    let again = world.put("import", "1234", "second", "d:1001500000", true).await;
    world.events.reschedule(&of_1234(), at).await.expect("it answers");
    assert_eq!(times(&world).await, [("first".to_owned(), 1_002_000_000), ("second".to_owned(), 1_002_000_001)]);
    let sent = world.sent();
    assert_eq!(sent.len(), 3);
    for event in [&second_copy, &again] {
        assert_eq!(world.claim(event).await, ClaimAnswer::Stale);
    }
    assert_eq!(world.claim(&sent[1].1).await, ClaimAnswer::Replaced);
    assert!(matches!(world.claim(&sent[2].1).await, ClaimAnswer::Run { .. }));
}

#[tokio::test]
async fn events_that_run_now_are_published_in_the_order_of_their_due_times() {
    let world = World::new();
    for (id, slot) in [("c", "d:1003000000"), ("a", "i"), ("b", "d:1002000000")] {
        world.put("import", "1234", id, slot, true).await;
    }
    world.events.run_now(&of_1234()).await.expect("it answers");
    let ids: Vec<String> = world.sent().into_iter().map(|(_, event)| event.id).collect();
    assert_eq!(ids, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_reason_names_the_last_move_and_the_reason_before_the_first() {
    let world = World::new();
    let event = world.put("mail", "", "a", "e:a", true).await;
    let reason = async || world.found(&Filter::default()).await.remove(0).reason.expect("known");
    world.events.reschedule(&EventSelector::id("mail", "a"), world.at(900)).await.expect("it answers");
    let moved = "reschedule: asked_at=1970-01-12T13:46:40.000Z";
    assert_eq!(reason().await, moved);
    let (_, copy) = world.sent().remove(0);
    assert_eq!(world.claim(&event).await, ClaimAnswer::Stale);
    let reason_text = Some("retry: error=\"C:\\x\"".to_owned());
    world.fail_as(&copy, Note { stage: Stage::Retry, attempts: 1, reason: reason_text }).await;
    for seconds in [1_000, 1_100, 1_200] {
        world.events.reschedule(&EventSelector::id("mail", "a"), world.at(seconds)).await.expect("it answers");
        assert_eq!(reason().await, format!("{moved} was=\"retry: error=\\\"C:\\\\x\\\"\""));
    }
}

#[tokio::test]
async fn an_unconfirmed_event_is_not_overtaken_by_a_later_one() {
    let world = World::new();
    for (id, slot) in [("a", "i"), ("b", "d:1002000000")] {
        world.put("import", "1234", id, slot, true).await;
    }
    world.refuse_one();
    let error = world.events.run_now(&of_1234()).await.expect_err("it is not confirmed");
    assert!(matches!(error, EventsError::Publish(_)), "{error:?}");
    assert!(world.sent().is_empty(), "{:?}", world.sent());
}

//! Another time for events that wait.

use super::*;

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
    let moved = world.events.reschedule(&Which::id(event_type, "a").of("1234"), at).await.expect("it answers");
    assert!(matches!(&moved[..], [(_, Moved::Done)]), "{moved:?}");
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
    assert_eq!(world.claim(&former).await, Claimed::Stale);
    assert!(matches!(world.claim(copy).await, Claimed::Run { .. }));
}

#[tokio::test]
async fn what_was_rescheduled_can_be_rescheduled() {
    let world = World::new();
    world.put("import", "1234", "a", "i", true).await;
    for at in [1_000_300, 1_000_200] {
        let moved = world.events.reschedule(&of_1234(), second(at)).await.expect("it answers");
        assert!(matches!(&moved[..], [(_, Moved::Done)]), "{moved:?}");
    }
    let (sent, found) = (world.sent(), world.found(&Filter::default()).await);
    assert_eq!((sent.len(), found.len(), found[0].due), (2, 1, Some(second(1_000_200))));
    assert_eq!(world.claim(&sent[0].1).await, Claimed::Stale);
    assert!(matches!(world.claim(&sent[1].1).await, Claimed::Run { .. }));
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
    let moved = world.events.run_now(&Which::id(event_type, "a").of("1234")).await.expect("it answers");
    assert!(matches!(&moved[..], [(_, Moved::Done)]), "{moved:?}");
    let sent = world.sent();
    let [(way, copy)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(way, &format!("t.scheduler {event_type}.now"));
    assert_eq!((copy.nbf, copy.attempts, &copy.stamp), (None, 2, &former.stamp.next()));
    assert_eq!(world.claim(&former).await, Claimed::Stale);
    assert!(matches!(world.claim(copy).await, Claimed::Run { .. }));
}

#[tokio::test]
async fn without_its_payload_an_event_is_put_off_and_nothing_else() {
    let world = World::new();
    let event = world.put("import", "1234", "a", "d:1001000000", false).await;
    let earlier = world.events.reschedule(&of_1234(), second(1_000_500)).await.expect("it answers");
    assert!(matches!(&earlier[..], [(_, Moved::NotKept(NotKept::Earlier))]), "{earlier:?}");
    let now = world.events.run_now(&of_1234()).await.expect("it answers");
    assert!(matches!(&now[..], [(_, Moved::NotKept(NotKept::Now))]), "{now:?}");
    let later = world.events.reschedule(&of_1234(), second(1_002_000)).await.expect("it answers");
    assert!(matches!(&later[..], [(_, Moved::Done)]), "{later:?}");
    assert!(world.sent().is_empty());
    assert_eq!(world.found(&Filter::default()).await[0].due, Some(second(1_002_000)));
    assert_eq!(world.claim(&event).await, Claimed::Later(second(1_002_000)));
}

#[tokio::test]
async fn a_dead_letter_is_brought_back_with_its_payload_alone() {
    let world = World::new();
    for (id, keep) in [("kept", true), ("lost", false)] {
        let event = world.put("mail", "", id, &format!("e:{id}"), keep).await;
        world.fail(&event, Stage::DeadLetter, 6).await;
    }
    assert_eq!(world.ids(&Filter::default().state(State::DeadLetter)).await, ["kept", "lost"]);
    let lost = world.events.reschedule(&Which::id("mail", "lost"), world.at(900)).await.expect("it answers");
    assert!(matches!(&lost[..], [(_, Moved::NotKept(NotKept::DeadLetter))]), "{lost:?}");
    let kept = world.events.run_now(&Which::id("mail", "kept")).await.expect("it answers");
    assert!(matches!(&kept[..], [(_, Moved::Done)]), "{kept:?}");
    assert_eq!(world.sent()[0].1.attempts, 6);
}

#[tokio::test]
async fn a_message_that_is_not_of_the_copy_that_is_shown_is_not_sent() {
    let world = World::new();
    let event = world.put("import", "1234", "a", "i", true).await;
    // A newer one, of which the index has not heard yet.
    world.register.with_shard(|shard| {
        for slot in shard.slots.values_mut() {
            slot.newest += 1;
        }
    });
    let moved = world.events.run_now(&of_1234()).await.expect("it answers");
    assert!(matches!(&moved[..], [(_, Moved::NotKept(_))]), "{moved:?}");
    assert_eq!(world.claim(&event).await, Claimed::Replaced);
}

#[tokio::test]
async fn what_the_broker_does_not_confirm_keeps_its_former_copy() {
    let world = World::new();
    let mut events = Vec::new();
    for n in 0..3 {
        events.push(world.put("import", &n.to_string(), &n.to_string(), "i", true).await);
    }
    world.broker.refuse.store(1, Ordering::SeqCst);
    let all: Vec<Result<_, _>> = {
        use futures_util::StreamExt as _;
        world.events.reschedule_all(&Filter::default(), second(1_000_900)).collect().await
    };
    assert!(matches!(&all[..], [Err(EventsError::Publish(_))]), "{all:?}");
    let mut stale = 0;
    for event in &events {
        stale += usize::from(world.claim(event).await == Claimed::Stale);
    }
    assert_eq!((stale, world.sent().len()), (2, 2));
}

#[tokio::test]
async fn all_that_a_filter_finds_is_moved_once() {
    let world = World::new();
    for n in 0..1_000 {
        world.put("import", &n.to_string(), &n.to_string(), &format!("d:{}", 1_000_100_000 + n), true).await;
    }
    // Into the midst of what is looked through.
    let at = Timestamp::from_millisecond(1_000_100_800).expect("a time");
    let moved: Vec<_> = world.events.reschedule_all(&Filter::default(), at).try_collect().await.expect("it answers");
    assert_eq!((moved.len(), world.sent().len()), (999, 999));
    assert!(moved.iter().all(|(_, moved)| *moved == Moved::Done));
    assert!(world.found(&Filter::default()).await.iter().all(|event| event.due == Some(at)));
    let moved: Vec<_> = world.events.run_now_all(&Filter::default()).try_collect().await.expect("it answers");
    assert_eq!((moved.len(), world.sent().len()), (1_000, 1_999));
}

/// Of slot `f` a run serves all that was published before it began, and is not done before it has ended.
#[rstest]
#[case::reschedule(false)]
#[case::run_now(true)]
#[tokio::test]
async fn what_was_started_while_it_is_moved_is_not_settled_by_that(#[case] now: bool) {
    let world = World::new();
    let served = world.put("first", "1234", "a", "f", true).await;
    let moved = world.put("first", "1234", "b", "f", true).await;
    *world.broker.meanwhile.lock().expect("no panic") = Some((world.register.clone(), world.ask(&moved)));
    let which = Which::id("first", "b").of("1234");
    let done = if now {
        world.events.run_now(&which).await.expect("it answers")
    } else {
        world.events.reschedule(&which, world.at(900)).await.expect("it answers")
    };
    assert!(matches!(done[..], [(_, Moved::Done)]), "{done:?}");
    // Its worker dies.
    world.register.with_shard(|shard| shard.leases.clear());
    assert!(matches!(world.claim(&moved).await, Claimed::Run { .. }), "or nobody serves a");
    assert!(matches!(world.claim(&served).await, Claimed::Stale | Claimed::Replaced));
}

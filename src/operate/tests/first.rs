//! Another time for events of slot `f`.

use super::*;

/// Runs an event now, or reschedules it to an earlier date.
async fn bring_forward(world: &World, id: &str, now: bool) {
    let which = EventSelector::id("first", id).of("1234");
    let done = if now {
        world.events.run_now(&which).await.expect("it answers")
    } else {
        world.events.reschedule(&which, world.at(300)).await.expect("it answers")
    };
    assert!(matches!(done[..], [(_, MoveOutcome::Done)]), "{done:?}");
}

#[rstest]
#[case::earlier(false)]
#[case::now(true)]
#[tokio::test]
async fn an_event_of_slot_f_moves_as_a_new_event_whose_run_serves_the_former_copy(#[case] now: bool) {
    let world = World::new();
    let former = world.put("first", "1234", "a", "f", true).await;
    bring_forward(&world, "a", now).await;
    let sent = world.sent();
    let [(_, moved)] = &sent[..] else { unreachable!("{sent:?}") };
    assert_eq!((moved.stamp.slot.clone(), moved.stamp.generation), (DedupSlot::First, 0));
    assert!(moved.stamp.version > former.stamp.version, "{moved:?}");
    world.run(moved, End::Finished).await;
    assert!(matches!(world.claim(&former).await, ClaimAnswer::Stale | ClaimAnswer::Replaced));
}

#[tokio::test]
async fn an_event_of_slot_f_is_put_off_without_another_copy() {
    let world = World::new();
    let event = world.put("first", "1234", "a", "f", true).await;
    let at = world.at(900);
    let done = world.events.reschedule(&EventSelector::reference("first", "1234"), at).await.expect("it answers");
    assert!(matches!(done[..], [(_, MoveOutcome::Done)]), "{done:?}");
    assert_eq!(world.sent().len(), 0);
    assert!(matches!(world.claim(&event).await, ClaimAnswer::Later(until) if until == at));
}

/// Of slot `f` a run serves all that was published before it began, and is not done before it has ended.
#[rstest]
#[case::earlier(false)]
#[case::now(true)]
#[tokio::test]
async fn an_event_of_slot_f_that_starts_during_its_move_is_not_settled_by_the_move(#[case] now: bool) {
    let world = World::new();
    let served = world.put("first", "1234", "a", "f", true).await;
    let moved = world.put("first", "1234", "b", "f", true).await;
    // A worker claims the event while its copy is published.
    let (register, mut claim) = (world.register.clone(), Some(world.ask(&moved)));
    world.on_publish(move |_| {
        if let Some(claim) = claim.take() {
            let claimed = register.claim(&[claim]).now_or_never().expect("it waits for nothing").expect("it answers");
            assert!(matches!(claimed[..], [ClaimAnswer::Run { .. }]), "{claimed:?}");
        }
        Ok(())
    });
    bring_forward(&world, "b", now).await;
    // Its worker dies.
    world.register.with_shard(|shard| shard.leases.clear());
    assert!(matches!(world.claim(&moved).await, ClaimAnswer::Run { .. }), "or nobody serves a");
    assert!(matches!(world.claim(&served).await, ClaimAnswer::Stale | ClaimAnswer::Replaced));
}

//! A cancel of events that Redis does not know: the copies that it must reach, and those that it must not.

use super::*;
use crate::domain::register::Cancel;

impl World {
    /// The first answer to each cancel is lost, so that the cancel is asked again.
    fn loses_answers(&self) {
        self.on_cancel(|register, batch| {
            register.cancel(batch).now_or_never().expect("it waits for nothing").expect("it answers");
        });
    }

    /// An event is handled to its end before a cancel comes.
    fn a_register_that_handles_the_event_before_a_cancel_arrives(&self, claim: Claim) {
        self.on_cancel(move |register, _| {
            let Claim { subject, token, due, terms, .. } = claim.clone();
            let claimed = register.claim(std::slice::from_ref(&claim)).now_or_never().expect("it waits for nothing");
            let ClaimAnswer::Run { fence, stamp, .. } = claimed.expect("it answers").remove(0) else {
                unreachable!("it is wanted")
            };
            let settle = Settle { subject, stamp, fence, token, due, end: End::Finished, terms };
            register.settle(&[settle]).now_or_never().expect("it waits for nothing").expect("it answers");
        });
    }

    fn on_cancel(&self, then: impl FnMut(&dyn Register, &[Cancel]) + Send + 'static) {
        *self.script.on_cancel.lock().expect("no panic") = Some(Box::new(then));
    }
}

fn found(slot: &str, id: &str, waiting: bool, running: bool) -> Cancelled {
    Cancelled { waiting, running, already: true, ..waits(slot, id) }
}

#[tokio::test]
async fn a_repeated_cancel_returns_the_event_that_it_found() {
    let world = World::new();
    let now = world.put("import", "1234", "now", "i", false).await;
    world.claim(&now).await;
    world.put("import", "1234", "june", "d:1001000000", false).await;
    world.put("mail", "", "alone", "e:alone", false).await;
    world.loses_answers();
    let mut cancelled = world.events.cancel(&of_1234()).await.expect("it answers");
    cancelled.sort_by_key(|slot| slot.slot.to_string());
    assert_eq!(cancelled, [found("d:1001000000", "june", true, false), found("i", "now", false, true)]);
    let alone = world.events.cancel(&EventSelector::id("mail", "alone")).await.expect("it answers");
    assert_eq!(alone, [found("e:alone", "alone", true, false)]);
    // Nothing waits any more.
    let again = world.events.cancel(&of_1234().at(second(1_001_000))).await.expect("it answers");
    assert_eq!(again, [Cancelled { id: None, ..found("d:1001000000", "", false, false) }]);
}

#[tokio::test]
async fn a_repeated_cancel_of_all_returns_the_events_that_it_found() {
    let world = World::new();
    for n in 0..3 {
        let event = world.put("import", &n.to_string(), &n.to_string(), "i", false).await;
        if n == 1 {
            world.claim(&event).await;
        }
    }
    world.loses_answers();
    let cancelled = world.events.cancel_all(&Filter::default());
    let mut cancelled: Vec<_> = cancelled.try_collect().await.expect("it answers");
    cancelled.sort_by_key(|(event, _)| event.id.clone());
    let told: Vec<Cancelled> = cancelled.into_iter().map(|(_, slot)| slot).collect();
    assert_eq!(told, [found("i", "0", true, false), found("i", "1", false, true), found("i", "2", true, false)]);
}

#[tokio::test]
async fn an_event_that_was_handled_before_the_cancel_is_not_reported_as_cancelled() {
    for all in [false, true] {
        let world = World::new();
        let event = world.put("import", "1234", "a", "i", false).await;
        world.a_register_that_handles_the_event_before_a_cancel_arrives(world.ask(&event));
        let told = if all {
            world.events.cancel_all(&Filter::default()).map_ok(|(_, slot)| slot).try_collect().await
        } else {
            world.events.cancel(&of_1234()).await
        };
        let nothing = Cancelled { waiting: false, ..waits("i", "a") };
        assert_eq!(told.expect("it answers"), [nothing]);
    }
}

#[rstest]
#[case("import", "i", EventSelector::id("import", "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11").of("5678"))]
#[case("import", "i", EventSelector::id("import", "0197C5E2-8A55-7C1F-9A3E-6F2F6D8F1B11"))]
#[case("mail", "e:0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11", EventSelector::id("mail", "0197C5E2-8A55-7C1F-9A3E-6F2F6D8F1B11").of("1234"))]
#[case("mail", "e:0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11", EventSelector::id("mail", "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11").of("5678"))]
#[tokio::test]
async fn an_event_that_is_known_by_another_name_is_not_cancelled(
    #[case] event_type: &str,
    #[case] slot: &str,
    #[case] which: EventSelector,
) {
    let world = World::new();
    let event = world.put(event_type, "1234", "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11", slot, false).await;
    let before = world.register.with_shard(|shard| shard.slots.clone());
    let error = world.events.cancel(&which).await.expect_err("refused").to_string();
    assert!(error.contains("0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11 of 1234"), "{error}");
    assert_eq!(world.register.with_shard(|shard| shard.slots.clone()), before);
    assert!(matches!(world.claim(&event).await, ClaimAnswer::Run { .. }));
}

/// How an event was published, seen from a cancel.
enum Published {
    WithoutRedis,
    BeforeRedisWasEmptied,
}

// The table in docs/operations/events.md.
#[rstest]
#[case::id("import", "d:1001000000", Published::WithoutRedis, EventSelector::id("import", "x"), true)]
#[case::id_of("import", "i", Published::WithoutRedis, EventSelector::id("import", "x").of("1234"), true)]
#[case::id("mail", "e:x", Published::WithoutRedis, EventSelector::id("mail", "x"), true)]
#[case::id_emptied("import", "d:1001000000", Published::BeforeRedisWasEmptied, EventSelector::id("import", "x"), false)]
#[case::id_emptied("mail", "e:x", Published::BeforeRedisWasEmptied, EventSelector::id("mail", "x"), true)]
#[case::at("import", "d:1001000000", Published::WithoutRedis, of_1234().at(second(1_001_000)), false)]
#[case::at_emptied("import", "d:1001000000", Published::BeforeRedisWasEmptied, of_1234().at(second(1_001_000)), true)]
#[case::at_emptied("import", "q:1001000000", Published::BeforeRedisWasEmptied, of_1234().at(second(1_001_000)), false)]
#[case::at_emptied("newest", "d", Published::BeforeRedisWasEmptied, of("newest").at(second(1_000_600)), false)]
#[case::at("mail", "e:x", Published::WithoutRedis, of("mail").at(second(1_000_600)), false)]
#[case::at_emptied("mail", "e:x", Published::BeforeRedisWasEmptied, of("mail").at(second(1_000_600)), false)]
#[case::immediate("import", "i", Published::WithoutRedis, of_1234().immediate(), false)]
#[case::immediate_emptied("import", "i", Published::BeforeRedisWasEmptied, of_1234().immediate(), true)]
#[case::reference("import", "i", Published::WithoutRedis, of_1234(), false)]
#[case::reference_emptied("import", "i", Published::BeforeRedisWasEmptied, of_1234(), false)]
#[case::reference_emptied("mail", "e:x", Published::BeforeRedisWasEmptied, of("mail"), false)]
#[tokio::test]
async fn an_event_that_redis_does_not_know_is_cancelled_as_documented(
    #[case] event_type: &str,
    #[case] slot: &str,
    #[case] how: Published,
    #[case] which: EventSelector,
    #[case] is_reached: bool,
) {
    let mut world = World::new();
    let mut event = world.put(event_type, "1234", "x", slot, false).await;
    if matches!(how, Published::WithoutRedis) {
        event.stamp = CopyVersion::uncontested("x", 0);
    }
    // Nothing of it is known.
    let register = Arc::new(MemoryRegister::new(world.clock.clone(), Duration::from_hours(24)));
    let (topology, broker) = (world.topology.clone(), world.broker.clone());
    world.events = Events::new(topology, broker, register.clone(), register.clone(), world.clock.clone());
    world.register = register;
    world.events.cancel(&which).await.expect("it answers");
    assert_eq!(world.claim(&event).await == ClaimAnswer::Stale, is_reached);
}

/// One round through the ladder is a day, and so is what is remembered beyond it.
#[rstest]
#[case("mail", "e:a")]
#[case("import", "d:1864000000")]
#[case("newest", "d")]
#[tokio::test]
async fn an_event_beyond_the_horizon_stays_cancelled(
    #[case] event_type: &str,
    #[case] slot: &str,
    #[values("id", "reference", "filter")] by: &str,
) {
    let world = World::new();
    let event = world.put_at(second(1_864_000), event_type, "1234", "a", slot, false).await;
    let cancelled = match by {
        "id" => world.events.cancel(&EventSelector::id(event_type, "a")).await.expect("it answers"),
        "reference" => world.events.cancel(&of(event_type)).await.expect("it answers"),
        _ => {
            let all = world.events.cancel_all(&Filter::default().id("a"));
            all.map_ok(|(_, cancelled)| cancelled).try_collect().await.expect("it answers")
        }
    };
    assert_eq!(cancelled, [waits(slot, "a")]);
    world.clock.0.store(1_864_000, Ordering::SeqCst);
    assert_eq!(world.claim(&event).await, ClaimAnswer::Stale);
}

/// Redis has forgotten it, but the date has a slot of its own.
#[tokio::test]
async fn a_cancel_of_an_unknown_date_is_remembered_until_that_date() {
    let world = World::new();
    let event = world.put_at(second(1_864_000), "import", "1234", "a", "d:1864000000", false).await;
    world.register.with_shard(|shard| shard.slots.clear());
    world.events.cancel(&of_1234().at(second(1_864_000))).await.expect("it answers");
    world.clock.0.store(1_864_000, Ordering::SeqCst);
    assert_eq!(world.claim(&event).await, ClaimAnswer::Stale);
}

fn of(event_type: &str) -> EventSelector {
    EventSelector::reference(event_type, "1234")
}

#[rstest]
#[case("import", "i", of_1234())]
#[case("mail", "e:a", EventSelector::id("mail", "a"))]
#[tokio::test]
async fn every_cancel_reports_a_run_that_goes_on(
    #[case] event_type: &str,
    #[case] slot: &str,
    #[case] which: EventSelector,
) {
    let world = World::new();
    let event = world.put(event_type, "1234", "a", slot, false).await;
    world.claim(&event).await;
    for _ in 0..2 {
        let cancelled = world.events.cancel(&which).await.expect("it answers");
        assert!(matches!(&cancelled[..], [Cancelled { waiting: false, running: true, .. }]), "{cancelled:?}");
        let shown = world.events.show(&which).await.expect("it answers");
        assert!(matches!(&shown[..], [EventInfo { state: State::Cancelled, running: true, .. }]), "{shown:?}");
    }
    world.register.with_shard(|shard| shard.leases.clear());
    let cancelled = world.events.cancel(&which).await.expect("it answers");
    assert!(cancelled.iter().all(|slot| !slot.running), "{cancelled:?}");
}

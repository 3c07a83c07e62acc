//! Finding, cancelling and moving events that wait, with a register and a broker in memory.

#[path = "../../tests/support/events.rs"]
mod events;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{FutureExt as _, TryStreamExt as _};
use jiff::Timestamp;
use rstest::rstest;

use self::events::{World, second};
use super::{EventSelector, Events, EventsError, MoveOutcome, PayloadNotKept};
use crate::{
    adapters::memory::MemoryRegister,
    domain::{
        event::Event,
        register::{
            Cancelled, Claim, ClaimAnswer, CopyVersion, DedupSlot, End, Note, Settle, Stage, Subject,
            event_info::EventInfo, event_state::State, filter::Filter,
        },
    },
    ports::Register,
    publish::published::PublishError,
};

mod cancelled;
mod first;
mod moving;

impl World {
    async fn found(&self, filter: &Filter) -> Vec<EventInfo> {
        self.events.search(filter).try_collect().await.expect("it answers")
    }

    async fn ids(&self, filter: &Filter) -> Vec<String> {
        self.found(filter).await.into_iter().filter_map(|event| event.id).collect()
    }
}

fn of_1234() -> EventSelector {
    EventSelector::reference("import", "1234")
}

fn waits(slot: &str, id: &str) -> Cancelled {
    let slot: DedupSlot = slot.parse().expect("a slot");
    Cancelled { slot, id: Some(id.to_owned()), waiting: true, running: false, already: false }
}

#[tokio::test]
async fn a_search_is_sorted_by_due_time_over_all_types_and_pages() {
    let world = World::new();
    let mut expected = Vec::new();
    for n in 0..1_200_i64 {
        let (event_type, reference) = if n % 3 == 0 { ("newest", "d") } else { ("import", "") };
        let slot = if n % 3 == 0 { "d".to_owned() } else { format!("d:{}", 1_000_000_000 + n * 1_000) };
        let reference = if reference.is_empty() { "1234".to_owned() } else { format!("{n:04}") };
        world.put(event_type, &reference, &n.to_string(), &slot, false).await;
        expected.push(n.to_string());
    }
    let all = world.found(&Filter::default()).await;
    assert_eq!(all.len(), 1_200);
    assert!(all.is_sorted_by_key(|event| event.due));
    let mut ids: Vec<String> = all.into_iter().filter_map(|event| event.id).collect();
    ids.sort_by_key(|id| id.parse::<u32>().expect("a number"));
    assert_eq!(ids, expected);
    let some = Filter::default().event_type("newest").reference_prefix("000");
    assert_eq!(world.ids(&some).await, ["0", "3", "6", "9"]);
}

#[tokio::test]
async fn events_of_a_reference_are_found_whether_they_coalesce_or_not() {
    let world = World::new();
    world.put("newest", "7", "dated", "d", false).await;
    world.put("newest", "7", "alone", "e:alone", false).await;
    world.put("newest", "8", "other", "d", false).await;
    world.put("import", "7", "another type", "i", false).await;
    let mut ids = world.ids(&Filter::default().event_type("newest").reference("7")).await;
    ids.sort();
    assert_eq!(ids, ["alone", "dated"]);
    for id in ["dated", "alone"] {
        assert_eq!(world.ids(&Filter::default().event_type("newest").id(id)).await, [id]);
        let which = EventSelector::id("newest", id);
        assert_eq!(world.events.show(&which.clone().of("7")).await.expect("known").len(), 1);
        assert_eq!(world.events.show(&which).await.expect("known").len(), 1);
    }
}

/// Published while Redis was slow: noted when it answered again, without a version.
#[tokio::test]
async fn a_reference_selects_all_its_events_also_those_without_a_version() {
    let world = World::new();
    world.put("import", "1234", "june", "d:1001000000", false).await;
    let june =
        world.put_at(second(1_001_000), "import", "1234", "june, unversioned", "e:june, unversioned", false).await;
    let now = world.put("import", "1234", "unversioned", "e:unversioned", false).await;
    world.put_at(second(1_001_000), "import", "5678", "another's", "e:another's", false).await;
    let of_1234_all = ["unversioned", "june", "june, unversioned"];
    assert_eq!(world.ids(&Filter::default().event_type("import").reference("1234")).await, of_1234_all);
    let shown = world.events.show(&of_1234()).await.expect("it answers");
    assert_eq!(shown.len(), 3, "{shown:?}");
    let mut cancelled = world.events.cancel(&of_1234().at(second(1_001_000))).await.expect("it answers");
    cancelled.sort_by_key(|slot| slot.slot.to_string());
    assert_eq!(cancelled, [waits("d:1001000000", "june"), waits("e:june, unversioned", "june, unversioned")]);
    assert_eq!(world.claim(&june).await, ClaimAnswer::Stale);
    let cancelled = world.events.cancel(&of_1234()).await.expect("it answers");
    assert!(cancelled.contains(&waits("e:unversioned", "unversioned")), "{cancelled:?}");
    assert_eq!(world.claim(&now).await, ClaimAnswer::Stale);
    assert_eq!(world.ids(&Filter::default()).await, ["another's"]);
}

#[rstest]
#[case(EventSelector::reference("improt", "1"), "is it `import`?")]
#[case(EventSelector::reference("plain", "1"), "register: off")]
#[case(EventSelector::reference("import", ""), "1 to 255 bytes")]
#[case(EventSelector::id("import", ""), "1 to 255 bytes")]
#[case(EventSelector::reference("mail", "1").immediate(), "by its id")]
#[tokio::test]
async fn an_invalid_selection_is_refused(#[case] which: EventSelector, #[case] why: &str) {
    let error = World::new().events.cancel(&which).await.expect_err("refused").to_string();
    assert!(error.contains(why), "{error}");
}

#[tokio::test]
async fn a_cancelled_reference_starts_nothing() {
    let world = World::new();
    let events = [
        world.put("import", "1234", "now", "i", false).await,
        world.put("import", "1234", "june", "d:1001000000", false).await,
    ];
    let other = world.put("import", "5678", "other", "i", false).await;
    let mut cancelled = world.events.cancel(&of_1234()).await.expect("it answers");
    cancelled.sort_by_key(|slot| slot.slot.to_string());
    assert_eq!(cancelled, [waits("d:1001000000", "june"), waits("i", "now")]);
    for event in &events {
        assert_eq!(world.claim(event).await, ClaimAnswer::Stale);
    }
    assert!(matches!(world.claim(&other).await, ClaimAnswer::Run { .. }));
    assert_eq!(world.ids(&Filter::default()).await, ["other"]);
    let shown = world.events.show(&of_1234()).await.expect("it answers");
    assert!(shown.len() == 2 && shown.iter().all(|event| event.state == State::Cancelled), "{shown:?}");
    // Nothing waits any more.
    let again = world.events.cancel(&of_1234()).await.expect("it answers");
    assert!(again.iter().all(|slot| !slot.waiting && !slot.running), "{again:?}");
    // What is published from now on is another matter.
    let later = world.put("import", "1234", "later", "i", false).await;
    assert!(matches!(world.claim(&later).await, ClaimAnswer::Run { .. }));
}

#[tokio::test]
async fn one_slot_is_cancelled_and_the_others_stay() {
    let world = World::new();
    let now = world.put("import", "1234", "now", "i", false).await;
    let june = world.put("import", "1234", "june", "d:1001000000", false).await;
    let july = world.put("import", "1234", "july", "d:1002000000", false).await;
    let cancelled = world.events.cancel(&of_1234().at(second(1_001_000))).await.expect("it answers");
    assert_eq!(cancelled, [waits("d:1001000000", "june")]);
    assert_eq!(world.claim(&june).await, ClaimAnswer::Stale);
    assert_eq!(world.events.cancel(&of_1234().immediate()).await.expect("it answers"), [waits("i", "now")]);
    assert_eq!(world.claim(&now).await, ClaimAnswer::Stale);
    assert!(matches!(world.claim(&july).await, ClaimAnswer::Run { .. }));
}

#[tokio::test]
async fn events_that_do_not_compete_are_cancelled_by_reference_or_id() {
    let world = World::new();
    let events = [
        world.put("mail", "ann", "a", "e:a", false).await,
        world.put("mail", "ann", "b", "e:b", false).await,
        world.put("mail", "", "c", "e:c", false).await,
    ];
    assert_eq!(world.events.cancel(&EventSelector::id("mail", "c")).await.expect("it answers"), [waits("e:c", "c")]);
    let mut cancelled = world.events.cancel(&EventSelector::reference("mail", "ann")).await.expect("it answers");
    cancelled.sort_by_key(|slot| slot.slot.to_string());
    assert_eq!(cancelled, [waits("e:a", "a"), waits("e:b", "b")]);
    for event in &events {
        assert_eq!(world.claim(event).await, ClaimAnswer::Stale);
    }
}

#[tokio::test]
async fn an_event_that_is_not_in_the_register_is_cancelled_by_its_id() {
    let world = World::new();
    let unknown =
        Cancelled { slot: DedupSlot::Event("x".into()), id: None, waiting: false, running: false, already: false };
    assert_eq!(world.events.cancel(&EventSelector::id("mail", "x")).await.expect("it answers"), [unknown]);
    let event = world.put("mail", "", "x", "e:x", false).await;
    assert_eq!(world.claim(&event).await, ClaimAnswer::Stale);
    // As long as the longest delay there is.
    world.clock.0.fetch_add(86_400, Ordering::SeqCst);
    assert_eq!(world.claim(&event).await, ClaimAnswer::Stale);
}

#[tokio::test]
async fn an_id_of_a_slot_cancels_that_slot_and_remembers_nothing_else() {
    let world = World::new();
    let event = world.put("import", "1234", "a", "i", false).await;
    assert_eq!(world.events.cancel(&EventSelector::id("import", "a")).await.expect("it answers"), [waits("i", "a")]);
    assert_eq!(world.claim(&event).await, ClaimAnswer::Stale);
    assert_eq!(world.register.with_shard(|shard| shard.slots.len()), 1);
}

#[tokio::test]
async fn a_cancel_reports_a_running_event_which_goes_on() {
    let world = World::new();
    let event = world.put("import", "1234", "a", "i", true).await;
    world.claim(&event).await;
    assert_eq!(world.found(&Filter::default().state(State::Running)).await.len(), 1);
    for moved in [
        world.events.run_now(&of_1234()).await.expect("it answers"),
        world.events.reschedule(&of_1234(), world.at(5)).await.expect("it answers"),
    ] {
        assert!(matches!(&moved[..], [(_, MoveOutcome::Running)]), "{moved:?}");
    }
    let running = Cancelled { waiting: false, running: true, ..waits("i", "a") };
    assert_eq!(world.events.cancel(&of_1234()).await.expect("it answers"), [running]);
    assert!(world.sent().is_empty());
}

#[tokio::test]
async fn every_event_that_a_filter_finds_is_cancelled_once() {
    let world = World::new();
    let mut events = Vec::new();
    for n in 0..1_000 {
        events.push(world.put("import", &format!("{n:04}"), &n.to_string(), "d:1001000000", false).await);
    }
    let filter = Filter::default().reference_prefix("00");
    let cancelled: Vec<_> = world.events.cancel_all(&filter).try_collect().await.expect("it answers");
    assert_eq!(cancelled.len(), 100);
    assert!(cancelled.iter().all(|(_, slot)| slot.waiting && !slot.running));
    for (n, event) in events.iter().enumerate() {
        assert_eq!(world.claim(event).await == ClaimAnswer::Stale, n < 100, "{n}");
    }
}

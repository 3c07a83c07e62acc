//! *cancel*: a copy that arrives after the cancel and was published before it is stale.

use hatchery::internals::register::{Cancelled, ClaimAnswer, CopyVersion, DedupSlot, End, Renewed, Reserved};

use super::{I, copied};
use crate::register::bench::{BACKLOG, Bench, DAY, DEDUP, EXCLUSIVE, HORIZON, LEASE, MS, SIDE_BY_SIDE, event, token};

/// A cancelled slot; whether an event waited in it; whether one ran; and whether the slot was already cancelled.
type Told = (DedupSlot, bool, bool, bool);

fn cancelled(slot: &DedupSlot, waiting: bool, running: bool) -> Told {
    (slot.clone(), waiting, running, false)
}

fn told(cancelled: Vec<Cancelled>) -> Vec<Told> {
    cancelled.into_iter().map(|slot| (slot.slot, slot.waiting, slot.running, slot.already)).collect()
}

rules! {
    async fn a_cancelled_event_does_not_start_and_a_later_one_does(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        for slot in [I, DedupSlot::First, DedupSlot::Dated, DedupSlot::DatedAt(5), DedupSlot::RequeuedAt(5)] {
            let first = b.publish(&a, &slot).await;
            assert_eq!(told(b.cancel(&a, Some(&slot)).await), [cancelled(&slot, true, false)]);
            assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Stale);
            assert_eq!(b.claim(&a, &first.next(), token(1)).await, ClaimAnswer::Stale);
            let second = b.publish(&n, &slot).await;
            b.handle(&n, &second).await;
        }
    }

    async fn a_cancel_of_a_slot_reaches_no_other_slot(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &DedupSlot::DatedAt(1)).await;
        let second = b.publish(&n, &DedupSlot::DatedAt(2)).await;
        b.cancel(&a, Some(&DedupSlot::DatedAt(1))).await;
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Stale);
        b.handle(&n, &second).await;
    }

    async fn a_cancel_of_a_reference_reaches_all_its_slots_and_no_other_reference(b) {
        let (a, n) = (event("1", "a"), event("2", "n"));
        let slots = [DedupSlot::Dated, DedupSlot::DatedAt(1), DedupSlot::First, I, DedupSlot::RequeuedAt(1)];
        let mut stamps = Vec::new();
        for slot in &slots {
            stamps.push(b.publish(&a, slot).await);
        }
        let other = b.publish(&n, &I).await;
        assert_eq!(told(b.cancel(&a, None).await), slots.map(|slot| cancelled(&slot, true, false)));
        for stamp in stamps {
            assert_eq!(b.claim(&a, &stamp, token(1)).await, ClaimAnswer::Stale);
        }
        b.handle(&n, &other).await;
        assert!(b.cancel(&event("3", "z"), None).await.is_empty());
    }

    async fn a_cancel_of_very_many_slots_reaches_them_all(b) {
        let a = event("1", "a");
        let mut stamps = Vec::new();
        for date in 0..40 {
            stamps.push(b.publish(&a, &DedupSlot::DatedAt(date)).await);
        }
        assert_eq!(b.cancel(&a, None).await.len(), 40);
        for stamp in stamps {
            assert_eq!(b.claim(&a, &stamp, token(1)).await, ClaimAnswer::Stale);
        }
    }

    async fn a_cancel_answers_what_waited_and_ran(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        assert_eq!(told(b.cancel(&a, Some(&I)).await), [cancelled(&I, false, false)]);
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        assert_eq!(told(b.cancel(&a, Some(&I)).await), [cancelled(&I, false, true)]);
        assert_eq!(told(b.cancel(&a, Some(&I)).await), [(I, false, false, true)]);
        b.settle(&a, &first, token(1), End::Finished).await;
        let second = b.publish(&a, &I).await;
        b.start(&a, &second, token(2)).await;
        b.publish(&n, &I).await;
        assert_eq!(told(b.cancel(&a, None).await), [cancelled(&I, true, true)]);
    }

    async fn a_cancelled_run_gets_no_follow_up_and_no_retry(b) {
        let (a, first) = b.running().await;
        b.cancel(&a, Some(&I)).await;
        assert_eq!(b.renew(&a, &first, token(1)).await, Renewed::Cancelled);
        let slot = DedupSlot::RequeuedAt(5);
        assert_eq!(b.reserve_for(&a, &slot, b.now(), Some(first.clone())).await, Reserved::Stale);
        b.settle(&a, &first, token(1), copied(&b)).await;
        assert_eq!(b.claim(&a, &first.next(), token(2)).await, ClaimAnswer::Stale);
    }

    async fn a_renewal_tells_a_run_of_its_cancel_as_long_as_it_goes_on(b) {
        let mut b = b;
        for (id, terms) in [("a", EXCLUSIVE), ("n", SIDE_BY_SIDE)] {
            b = b.with_terms(terms);
            let own = DedupSlot::Event(id.to_owned());
            for slot in [I, DedupSlot::First, DedupSlot::Dated, DedupSlot::DatedAt(5), DedupSlot::RequeuedAt(5), own] {
                let a = event(&format!("{id} {slot}"), id);
                let stamp = match slot {
                    DedupSlot::Event(_) => CopyVersion::uncontested(id, 0),
                    _ => b.publish(&a, &slot).await,
                };
                b.start(&a, &stamp, token(1)).await;
                assert_eq!(b.renew(&a, &stamp, token(1)).await, Renewed::Held, "{slot:?}");
                assert!(!b.still_runs(&a, &slot).await, "{slot:?}");
                b.cancel(&a, Some(&slot)).await;
                for _ in 0..2 {
                    b.advance(LEASE.saturating_sub(MS));
                    assert_eq!(b.renew(&a, &stamp, token(1)).await, Renewed::Cancelled, "{slot:?}");
                }
                assert!(b.still_runs(&a, &slot).await, "{slot:?}");
                b.settle(&a, &stamp, token(1), End::Finished).await;
                assert!(!b.still_runs(&a, &slot).await, "{slot:?}");
                assert_eq!(b.renew(&a, &stamp, token(1)).await, Renewed::Lost, "{slot:?}");
            }
        }
    }

    async fn a_run_now_beside_a_running_copy_is_no_cancel(b) {
        for stamp in [b.publish(&event("1", "a"), &I).await, CopyVersion::uncontested("a", 0)] {
            let a = event("1", "a");
            b.start(&a, &stamp, token(1)).await;
            // A person who looked before the run began has published the next copy.
            b.settle(&a, &stamp, token(0), copied(&b)).await;
            assert_eq!(b.renew(&a, &stamp, token(1)).await, Renewed::Held);
            b.settle(&a, &stamp, token(1), End::Finished).await;
        }
    }

    async fn a_reschedule_and_a_newer_event_beside_a_running_copy_are_no_cancel(b) {
        let n = event("1", "n");
        let (a, first) = b.running().await;
        b.reserve_for(&a, &DedupSlot::RequeuedAt(5), b.now(), Some(first.clone())).await;
        b.settle(&a, &first, token(0), End::Finished).await;
        assert_eq!(b.renew(&a, &first, token(1)).await, Renewed::Held);
        // A newer event whose letter a person discards: its version is above that of the run.
        let second = b.publish(&n, &I).await;
        b.settle(&n, &second, token(0), End::Finished).await;
        assert_eq!(b.renew(&a, &first, token(1)).await, Renewed::Held);
    }

    async fn a_cancel_of_one_slot_ends_no_run_of_another_one(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let (first, dated) = (b.publish(&a, &I).await, b.publish(&n, &DedupSlot::DatedAt(5)).await);
        b.start(&a, &first, token(1)).await;
        b.cancel(&n, Some(&dated.slot)).await;
        assert_eq!(b.renew(&a, &first, token(1)).await, Renewed::Held);
        assert!(!b.still_runs(&n, &dated.slot).await && !b.still_runs(&a, &I).await);
    }

    async fn an_event_after_a_cancelled_run_is_not_cancelled(b) {
        let n = event("1", "n");
        let (a, first) = b.running().await;
        b.cancel(&a, None).await;
        let second = b.publish(&n, &I).await;
        assert_eq!(b.claim(&n, &second, token(2)).await, ClaimAnswer::Busy);
        assert!(b.still_runs(&a, &I).await);
        b.settle(&a, &first, token(1), End::Finished).await;
        b.start(&n, &second, token(2)).await;
        assert_eq!(b.renew(&n, &second, token(2)).await, Renewed::Held);
        assert!(!b.still_runs(&a, &I).await);
    }

    async fn an_event_without_a_reference_is_cancelled_by_its_id(b) {
        let a = event("", "a");
        let slot = DedupSlot::Event("a".to_owned());
        assert_eq!(told(b.cancel(&a, None).await), [cancelled(&slot, false, false)]);
        assert_eq!(b.claim(&a, &CopyVersion::uncontested("a", 0), token(1)).await, ClaimAnswer::Stale);
        assert_eq!(b.claim(&a, &CopyVersion::uncontested("a", 7), token(1)).await, ClaimAnswer::Stale);
        b.start(&event("1", "n"), &CopyVersion::uncontested("n", 0), token(2)).await;
        assert!(b.cancel(&event("1", "n"), Some(&DedupSlot::Event("n".to_owned()))).await[0].running);
    }

    async fn a_cancel_ends_a_reschedule(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        b.postpone(&a, &first, b.after(DAY)).await;
        b.cancel(&a, None).await;
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Stale);
        let second = b.publish(&n, &I).await;
        b.handle(&n, &second).await;
    }

    async fn a_cancel_is_remembered_for_the_backlog_retention_beyond_the_due_time(b) {
        let a = event("1", "a");
        let first = b.publish_due(&a, &DedupSlot::Dated, b.after(30 * DAY)).await;
        b.cancel(&a, None).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        b.advance_almost(30 * DAY + BACKLOG);
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Stale);
        b.advance(MS);
        b.start(&a, &first, token(1)).await;
    }

    async fn a_cancel_of_an_unknown_event_is_remembered_for_the_horizon(b) {
        let a = event("", "a");
        b.cancel(&a, None).await;
        b.advance_almost(HORIZON + BACKLOG);
        assert_eq!(b.claim(&a, &CopyVersion::uncontested("a", 0), token(1)).await, ClaimAnswer::Stale);
        b.advance(MS);
        b.start(&a, &CopyVersion::uncontested("a", 0), token(1)).await;
    }

    async fn a_cancel_of_an_event_beyond_the_horizon_is_remembered_beyond_its_date(b) {
        for (n, slot) in [DedupSlot::Event("a".to_owned()), DedupSlot::DatedAt(5), DedupSlot::Dated].into_iter().enumerate() {
            let a = event(&n.to_string(), "a");
            let first = match slot {
                DedupSlot::Event(_) => CopyVersion::uncontested("a", 0),
                // The slot is unknown, as after Redis was emptied.
                _ => CopyVersion { slot, version: b.reserve_due(&event("other", "z"), &I, b.now()).await, generation: 0 },
            };
            b.cancel_due(&a, Some(&first.slot), Some(b.after(HORIZON + DAY))).await;
            b.advance_almost(HORIZON + DAY + BACKLOG);
            assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Stale);
            b.advance(MS);
            b.start(&a, &first, token(1)).await;
        }
    }

    async fn a_cancel_of_an_unknown_event_that_is_due_soon_is_remembered_for_the_horizon(b) {
        let a = event("", "a");
        b.cancel_due(&a, None, Some(b.after(DAY))).await;
        b.advance_almost(HORIZON + BACKLOG);
        assert_eq!(b.claim(&a, &CopyVersion::uncontested("a", 0), token(1)).await, ClaimAnswer::Stale);
    }

    async fn an_event_after_a_cancel_is_remembered_as_long_as_without_it(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        b.publish(&a, &I).await;
        b.cancel(&a, None).await;
        b.advance(MS);
        let second = b.publish(&n, &I).await;
        b.handle(&n, &second).await;
        b.advance_almost(DEDUP);
        assert_eq!(b.claim(&n, &second, token(1)).await, ClaimAnswer::Stale);
        b.advance(MS);
        b.start(&n, &second, token(1)).await;
    }
}

//! The mark: which version of a slot is handled, and which copy of it counts.

use hatchery::internals::register::{ClaimAnswer, DedupSlot, End};

use super::{I, copied};
use crate::register::bench::{Bench, LEASE, event, stamp, token};

rules! {
    async fn a_finished_event_does_not_run_again(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Stale);
    }

    async fn a_finished_version_is_finished_in_all_its_copies(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        assert_eq!(b.claim(&a, &first.next(), token(2)).await, ClaimAnswer::Stale);
    }

    async fn a_later_copy_makes_the_earlier_one_stale_and_runs_itself(b) {
        let (a, first) = b.running().await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Stale);
        b.handle(&a, &first.next()).await;
    }

    async fn a_copy_whose_settle_was_lost_runs_and_makes_the_earlier_one_stale(b) {
        let (a, first) = b.running().await;
        b.advance(LEASE);
        b.start(&a, &first.next(), token(2)).await;
        assert_eq!(b.claim(&a, &first, token(3)).await, ClaimAnswer::Stale);
    }

    async fn finishing_an_earlier_copy_finishes_the_later_one(b) {
        let (a, first) = b.running().await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        assert_eq!(b.claim(&a, &first.next(), token(2)).await, ClaimAnswer::Stale);
    }

    async fn a_late_copy_does_not_revive_a_finished_event(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        assert_eq!(b.claim(&a, &first.next(), token(2)).await, ClaimAnswer::Stale);
    }

    async fn a_newer_event_that_has_begun_makes_the_older_one_stale_even_if_unrecorded(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        let newer = stamp(&I, b.reserve_due(&n, &I, b.now()).await, 0);
        b.start(&n, &newer, token(1)).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Stale);
    }

    async fn a_late_settle_never_lowers_the_mark(b) {
        let n = event("1", "n");
        let (a, first) = b.running().await;
        b.advance(LEASE);
        let newer = b.publish(&n, &I).await;
        b.handle(&n, &newer).await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        assert_eq!(b.claim(&n, &newer, token(2)).await, ClaimAnswer::Stale);
        assert_eq!(b.claim(&a, &first.next(), token(3)).await, ClaimAnswer::Stale);
    }

    async fn a_finished_event_finishes_its_own_slot_only(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let dated = b.publish(&a, &DedupSlot::DatedAt(1)).await;
        let immediate = b.publish(&n, &I).await;
        b.handle(&n, &immediate).await;
        b.handle(&a, &dated).await;
    }

    async fn a_settle_counts_although_redis_has_forgotten_the_claim(b) {
        let a = event("1", "a");
        let unknown = stamp(&I, b.now().as_microsecond(), 0);
        b.settle(&a, &unknown, token(1), End::Finished).await;
        assert_eq!(b.claim(&a, &unknown, token(2)).await, ClaimAnswer::Stale);
    }
}

//! The mark: which version of a slot is handled, which copy of it counts, and until when it is rescheduled (*later*).

use hatchery::internals::register::{ClaimAnswer, CopyVersion, DedupSlot, End, Postponed};

use super::{I, copied};
use crate::register::bench::{BACKLOG, Bench, DAY, LEASE, MS, event, stamp, token};

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

    async fn a_rescheduled_copy_waits_and_then_runs(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        let date = b.after(DAY);
        b.postpone(&a, &first, date).await;
        let answer = b.claim(&a, &first, token(1)).await;
        assert_eq!(answer, ClaimAnswer::Later(jiff::Timestamp::from_millisecond(date.as_millisecond()).unwrap()));
        b.advance(DAY);
        b.handle(&a, &first).await;
    }

    async fn a_reschedule_holds_back_only_its_generation(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.postpone(&a, &first, b.after(DAY)).await;
        b.handle(&a, &first.next()).await;
    }

    async fn a_rescheduled_copy_that_was_replaced_is_dropped_at_once(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.postpone(&a, &first, b.after(DAY)).await;
        b.publish(&event("1", "n"), &I).await;
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Replaced);
    }

    async fn a_rescheduled_event_is_remembered_for_backlog_retention_beyond_its_new_date(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &DedupSlot::Dated).await;
        let second = b.publish(&n, &DedupSlot::Dated).await;
        b.postpone(&n, &second, b.after(30 * DAY)).await;
        b.advance_almost(30 * DAY + BACKLOG);
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Replaced);
        b.advance(MS);
        b.start(&a, &first, token(1)).await;
    }

    async fn a_second_reschedule_replaces_the_first(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.postpone(&a, &first, b.after(DAY)).await;
        b.postpone(&a, &first, b.after(MS)).await;
        b.advance(MS);
        b.handle(&a, &first).await;
    }

    async fn a_running_event_cannot_be_rescheduled(b) {
        let (a, first) = b.running().await;
        assert_eq!(b.later(&a, &first, b.after(DAY)).await, Postponed::Running);
        b.release(&a, &first, token(1)).await;
        b.postpone(&a, &first, b.after(DAY)).await;
        assert!(matches!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Later(_)));
    }

    async fn a_handled_replaced_or_cancelled_event_cannot_be_rescheduled(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        let second = b.publish(&n, &I).await;
        assert_eq!(b.later(&a, &first, b.after(DAY)).await, Postponed::Unwanted);
        b.handle(&n, &second).await;
        assert_eq!(b.later(&n, &second, b.after(DAY)).await, Postponed::Unwanted);
        let third = b.publish(&a, &I).await;
        b.cancel(&a, Some(&I)).await;
        assert_eq!(b.later(&a, &third, b.after(DAY)).await, Postponed::Unwanted);
    }

    async fn an_event_in_a_slot_of_its_own_can_be_rescheduled(b) {
        let a = event("", "a");
        let alone = CopyVersion::uncontested("a", 0);
        b.postpone(&a, &alone, b.after(DAY)).await;
        assert!(matches!(b.claim(&a, &alone, token(1)).await, ClaimAnswer::Later(_)));
        b.advance(DAY);
        b.handle(&a, &alone).await;
    }
}

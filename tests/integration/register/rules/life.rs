//! How long Redis remembers slots and marks.

use hatchery::internals::register::{ClaimAnswer, CopyVersion, DedupSlot, End, Renewed, Terms};

use super::{I, copied, copied_to};
use crate::register::bench::{BACKLOG, Bench, DAY, DEDUP, EXCLUSIVE, MS, event, stamp, token};

rules! {
    async fn a_finished_event_is_remembered_for_dedup_retention(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        b.advance_almost(DEDUP);
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Stale);
        b.advance(MS);
        b.start(&a, &first, token(2)).await;
    }

    async fn an_event_that_came_late_is_remembered_for_twice_its_lateness(b) {
        let (a, first) = b.running().await;
        b.settle_late(&a, &first, token(1), End::Finished, b.before(DAY)).await;
        b.advance_almost(2 * DAY);
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Stale);
        b.advance(MS);
        b.start(&a, &first, token(2)).await;
    }

    async fn an_event_that_came_years_late_is_remembered_for_backlog_retention(b) {
        let (a, first) = b.running().await;
        b.settle_late(&a, &first, token(1), End::Finished, b.before(3_650 * DAY)).await;
        b.advance_almost(BACKLOG);
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Stale);
        b.advance(MS);
        b.start(&a, &first, token(2)).await;
    }

    async fn a_dedup_retention_above_backlog_retention_counts(b) {
        let b = b.with_terms(Terms { dedup_retention: 2 * BACKLOG, ..EXCLUSIVE });
        let (a, first) = b.running().await;
        b.settle_late(&a, &first, token(1), End::Finished, b.before(3_650 * DAY)).await;
        b.advance_almost(2 * BACKLOG);
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Stale);
    }

    async fn an_open_event_is_remembered_for_backlog_retention_beyond_its_due_time(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let slot = DedupSlot::Dated;
        let first = b.publish_due(&a, &slot, b.after(30 * DAY)).await;
        b.publish_due(&n, &slot, b.after(2 * DAY)).await;
        b.advance_almost(30 * DAY + BACKLOG);
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Replaced);
        b.advance(MS);
        b.start(&a, &first, token(1)).await;
    }

    async fn a_finished_mark_stays_while_a_newer_event_waits(b) {
        let (a, first) = b.running().await;
        b.publish(&event("1", "n"), &I).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        b.advance_almost(BACKLOG);
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Stale);
    }

    async fn an_event_that_began_and_was_not_settled_is_remembered_for_backlog_retention(b) {
        let a = event("1", "a");
        b.start(&a, &CopyVersion::uncontested("a", 0), token(1)).await;
        b.advance_almost(BACKLOG);
        assert_eq!(b.start(&a, &CopyVersion::uncontested("a", 0), token(2)).await.1, 1);
    }

    async fn the_mark_outlives_a_replaced_copy_that_is_due_later(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let slot = DedupSlot::Dated;
        let first = b.publish_due(&a, &slot, b.after(30 * DAY)).await;
        let second = b.publish(&n, &slot).await;
        b.handle(&n, &second).await;
        b.advance_almost(30 * DAY + BACKLOG);
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Stale);
    }

    async fn the_mark_outlives_a_retry_that_is_due_later(b) {
        let (a, first) = b.running().await;
        b.settle(&a, &first, token(1), copied_to(b.after(30 * DAY))).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        b.advance_almost(30 * DAY + BACKLOG);
        assert_eq!(b.claim(&a, &first.next(), token(1)).await, ClaimAnswer::Stale);
    }

    async fn a_sooner_due_time_does_not_lower_the_latest_one(b) {
        let a = event("1", "a");
        let first = b.publish_due(&a, &DedupSlot::Dated, b.after(30 * DAY)).await;
        b.reserve_due(&event("1", "n"), &DedupSlot::Dated, b.now()).await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        b.advance(30 * DAY);
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Stale);
    }

    async fn a_renewed_lease_keeps_the_mark(b) {
        let b = b.with_terms(Terms { lease: 2 * BACKLOG, ..EXCLUSIVE });
        let (a, n) = (event("1", "a"), event("1", "n"));
        let older = b.publish(&a, &I).await;
        let newer = b.publish(&n, &I).await;
        b.start(&n, &newer, token(1)).await;
        b.advance_almost(BACKLOG);
        assert_eq!(b.renew(&n, &newer, token(1)).await, Renewed::Held);
        b.advance_almost(BACKLOG);
        assert_eq!(b.claim(&a, &older, token(2)).await, ClaimAnswer::Stale);
    }

    async fn a_late_record_does_not_shorten_the_memory_of_an_event(b) {
        let (a, first) = b.running().await;
        b.settle_late(&a, &first, token(1), End::Finished, b.before(DAY)).await;
        b.record(&a, &I, first.version).await;
        b.advance_almost(2 * DAY);
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Stale);
    }

    async fn the_mark_outlives_an_older_event_that_is_recorded_after_a_newer_one_was_handled(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let older = stamp(&I, b.reserve_due(&a, &I, b.now()).await, 0);
        let newer = b.publish(&n, &I).await;
        b.handle(&n, &newer).await;
        b.record(&a, &I, older.version).await;
        b.advance_almost(BACKLOG);
        assert_eq!(b.claim(&a, &older, token(1)).await, ClaimAnswer::Stale);
    }

    async fn the_mark_outlives_an_older_event_that_is_recorded_while_a_newer_one_waits_or_runs(b) {
        for runs in [false, true] {
            let reference = if runs { "1" } else { "2" };
            let (a, n) = (event(reference, "a"), event(reference, "n"));
            let older = stamp(&I, b.reserve_due(&a, &I, b.now()).await, 0);
            let newer = b.publish(&n, &I).await;
            if runs {
                b.start(&n, &newer, token(1)).await;
                b.record(&a, &I, older.version).await;
            } else {
                b.record(&a, &I, older.version).await;
                b.start(&n, &newer, token(1)).await;
            }
            b.settle(&n, &newer, token(1), End::Finished).await;
            b.advance_almost(BACKLOG);
            assert_eq!(b.claim(&a, &older, token(1)).await, ClaimAnswer::Stale, "the newer event runs: {runs}");
        }
    }

    async fn the_mark_of_a_third_event_outlives_one_that_was_overtaken(b) {
        let a = event("1", "a");
        let older = stamp(&I, b.reserve_due(&a, &I, b.now()).await, 0);
        let newer = b.publish(&event("1", "n"), &I).await;
        b.record(&a, &I, older.version).await;
        b.handle(&event("1", "n"), &newer).await;
        let newest = b.publish(&event("1", "m"), &I).await;
        b.handle(&event("1", "m"), &newest).await;
        b.advance_almost(BACKLOG);
        assert_eq!(b.claim(&a, &older, token(1)).await, ClaimAnswer::Stale);
    }

    async fn an_event_that_is_recorded_while_it_runs_is_not_overtaken(b) {
        let a = event("1", "a");
        let version = b.reserve_due(&a, &DedupSlot::First, b.now()).await;
        let first = stamp(&DedupSlot::First, version, 0);
        b.start(&a, &first, token(1)).await;
        b.record(&a, &DedupSlot::First, version).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        b.advance(DEDUP);
        b.start(&a, &first, token(2)).await;
    }

    async fn one_slot_expires_while_another_of_its_reference_stays(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let dated = b.publish_due(&n, &DedupSlot::Dated, b.after(DAY)).await;
        b.settle(&n, &dated, token(1), End::Finished).await;
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        b.advance(DEDUP);
        assert_eq!(b.claim(&n, &dated, token(1)).await, ClaimAnswer::Stale);
        b.start(&a, &first, token(2)).await;
    }
}

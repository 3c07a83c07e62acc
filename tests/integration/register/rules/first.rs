//! The slot `f`: one run serves all events that were published before it began.

use hatchery::internals::register::{ClaimAnswer, DedupSlot, End, Postponed};

use super::{I, copied};
use crate::register::bench::{Bench, DAY, DEDUP, LEASE, MS, event, token};

const F: DedupSlot = DedupSlot::First;

rules! {
    async fn one_run_serves_everything_published_before_it_begins(b) {
        let [a, n, z] = ["a", "n", "z"].map(|id| event("1", id));
        let first = b.publish(&a, &F).await;
        let second = b.publish(&n, &F).await;
        let third = b.publish(&z, &F).await;
        b.start(&n, &second, token(1)).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Stale);
        assert_eq!(b.claim(&z, &third, token(3)).await, ClaimAnswer::Replaced);
        b.settle(&n, &second, token(1), End::Finished).await;
        assert_eq!(b.claim(&z, &third, token(3)).await, ClaimAnswer::Replaced);
    }

    async fn the_first_event_runs_although_a_newer_one_waits(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &F).await;
        b.publish(&event("1", "n"), &F).await;
        b.start(&a, &first, token(1)).await;
    }

    async fn an_event_that_is_put_off_puts_off_the_older_ones_whose_run_would_serve_it(b) {
        let [a, n, z] = ["a", "n", "z"].map(|id| event("1", id));
        let first = b.publish(&a, &F).await;
        let second = b.publish(&n, &F).await;
        assert_eq!(b.later(&n, &second, b.after(DAY)).await, Postponed::Until);
        for (event, copy) in [(&a, &first), (&n, &second)] {
            assert!(matches!(b.claim(event, copy, token(1)).await, ClaimAnswer::Later(_)));
        }
        b.advance(DAY);
        b.start(&a, &first, token(1)).await;
        assert_eq!(b.claim(&n, &second, token(2)).await, ClaimAnswer::Replaced);
        b.settle(&a, &first, token(1), End::Finished).await;
        let third = b.publish(&z, &F).await;
        b.handle(&z, &third).await;
    }

    async fn an_event_that_is_put_off_does_not_put_off_newer_ones_or_a_retry(b) {
        let [a, n, z] = ["a", "n", "z"].map(|id| event("1", id));
        let first = b.publish(&a, &F).await;
        b.start(&a, &first, token(1)).await;
        let second = b.publish(&n, &F).await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        assert_eq!(b.later(&n, &second, b.after(DAY)).await, Postponed::Until);
        b.handle(&a, &first.next()).await;
        assert!(matches!(b.claim(&n, &second, token(1)).await, ClaimAnswer::Later(_)));
        let third = b.publish(&z, &F).await;
        b.handle(&z, &third).await;
        assert_eq!(b.claim(&n, &second, token(1)).await, ClaimAnswer::Stale);
    }

    async fn an_event_published_during_a_run_gets_a_run_of_its_own(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &F).await;
        b.start(&a, &first, token(1)).await;
        let second = b.publish(&n, &F).await;
        assert_eq!(b.claim(&n, &second, token(2)).await, ClaimAnswer::Busy);
        b.settle(&a, &first, token(1), End::Finished).await;
        b.handle(&n, &second).await;
    }

    async fn a_retry_is_wanted_until_another_run_begins(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &F).await;
        b.start(&a, &first, token(1)).await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        b.start(&a, &first.next(), token(2)).await;
        b.settle(&a, &first.next(), token(2), copied(&b)).await;
        let second = b.publish(&n, &F).await;
        b.handle(&n, &second).await;
        assert_eq!(b.claim(&a, &first.next().next(), token(3)).await, ClaimAnswer::Stale);
    }

    async fn a_crashed_run_is_repeated_and_still_covers_later_events(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &F).await;
        let second = b.publish(&n, &F).await;
        b.start(&a, &first, token(1)).await;
        b.advance(LEASE);
        assert_eq!(b.claim(&n, &second, token(2)).await, ClaimAnswer::Replaced);
        assert_eq!(b.start(&a, &first, token(3)).await.1, 1);
    }

    async fn a_late_settle_does_not_hide_an_event_published_after_its_run_began(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &F).await;
        b.start(&a, &first, token(1)).await;
        b.advance(LEASE);
        let second = b.publish(&n, &F).await;
        b.start(&a, &first, token(2)).await;
        assert_eq!(b.claim(&n, &second, token(3)).await, ClaimAnswer::Busy);
        // The run that began before `n` was published ends; the other one dies.
        b.settle(&a, &first, token(1), End::Finished).await;
        b.advance(LEASE);
        assert_eq!(b.claim(&a, &first, token(4)).await, ClaimAnswer::Stale);
        b.handle(&n, &second).await;
    }

    async fn a_claim_whose_run_never_settles_covers_no_event(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &F).await;
        b.start(&a, &first, token(1)).await;
        let second = b.publish(&n, &F).await;
        b.advance(LEASE);
        b.start(&a, &first, token(2)).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        b.advance(LEASE);
        assert_eq!(b.claim(&a, &first, token(3)).await, ClaimAnswer::Stale);
        b.handle(&n, &second).await;
    }

    async fn a_slot_of_first_events_does_not_mix_with_the_immediate_slot(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &F).await;
        let latest = b.publish(&n, &I).await;
        b.handle(&a, &first).await;
        b.handle(&n, &latest).await;
    }

    async fn a_covered_event_is_remembered_for_dedup_retention(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &F).await;
        let second = b.publish(&n, &F).await;
        b.handle(&a, &first).await;
        b.advance_almost(DEDUP);
        assert_eq!(b.claim(&n, &second, token(1)).await, ClaimAnswer::Replaced);
        b.advance(MS);
        b.start(&n, &second, token(1)).await;
    }
}

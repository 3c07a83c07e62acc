//! The slot `f`, in which one run serves all events that were published before it began; and the slots `e:<id>`, of events that
//! coalesce with nothing.

use hatchery::internals::register::{ClaimAnswer, CopyVersion, DedupSlot, End, Postponed, Renewed};

use super::{I, copied};
use crate::register::bench::{Bench, DAY, DEDUP, LEASE, MS, event, stamp, token};

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

    async fn an_event_in_a_slot_of_its_own_runs_once(b) {
        for id in ["a", "b", "c"] {
            b.handle(&event("1", id), &CopyVersion::uncontested(id, 0)).await;
            assert_eq!(b.claim(&event("1", id), &CopyVersion::uncontested(id, 0), token(1)).await, ClaimAnswer::Stale);
        }
    }

    async fn copies_of_an_event_in_a_slot_of_its_own_differ_by_generation(b) {
        let a = event("", "a");
        let alone = CopyVersion::uncontested("a", 0);
        b.start(&a, &alone, token(1)).await;
        b.settle(&a, &alone, token(1), copied(&b)).await;
        assert_eq!(b.claim(&a, &alone, token(2)).await, ClaimAnswer::Stale);
        b.handle(&a, &alone.next()).await;
    }

    async fn the_version_in_a_slot_of_its_own_counts_as_0(b) {
        let a = event("1", "a");
        let odd = CopyVersion { version: 77, ..CopyVersion::uncontested("a", 0) };
        let (_, _, effective) = b.start(&a, &odd, token(1)).await;
        assert_eq!(effective, CopyVersion::uncontested("a", 0));
        b.settle(&a, &odd, token(1), End::Finished).await;
        assert_eq!(b.claim(&a, &CopyVersion::uncontested("a", 0), token(2)).await, ClaimAnswer::Stale);
    }

    async fn an_event_with_a_forged_version_is_in_a_slot_of_its_own(b) {
        let a = event("1", "a");
        let now = b.now().as_microsecond();
        for (n, version) in [(1, 1 << 53), (2, now + 1_000_000), (3, 0), (4, -5)] {
            let id = format!("foreign-{n}");
            let foreign = event("1", &id);
            let (_, _, effective) = b.start(&foreign, &stamp(&I, version, 0), token(n)).await;
            assert_eq!(effective, CopyVersion::uncontested(&id, 0));
            assert_eq!(b.claim(&foreign, &stamp(&I, version, 0), token(n)).await, ClaimAnswer::Run {
                fence: now + i64::try_from(n).unwrap() - 1, crashes: 0, stamp: effective.clone()
            });
            assert_eq!(b.renew(&foreign, &effective, token(n)).await, Renewed::Held);
            b.settle(&foreign, &effective, token(n), End::Finished).await;
            assert_eq!(b.claim(&foreign, &stamp(&I, version, 0), token(9)).await, ClaimAnswer::Stale);
        }
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
    }

    async fn a_recorded_or_settled_forged_version_hides_no_event(b) {
        let (a, foreign) = (event("1", "a"), event("1", "foreign"));
        b.record(&foreign, &I, 1 << 53).await;
        b.settle(&foreign, &stamp(&I, 1 << 53, 0), token(1), End::Finished).await;
        assert_eq!(b.claim(&foreign, &CopyVersion::uncontested("foreign", 0), token(2)).await, ClaimAnswer::Stale);
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
    }

    async fn a_given_version_counts_although_it_is_ahead_of_the_clock(b) {
        let a = event("1", "a");
        let mut first = b.publish(&a, &I).await;
        for _ in 0..5 {
            first = b.publish(&a, &I).await;
        }
        assert!(first.version > b.now().as_microsecond());
        assert_eq!(b.start(&a, &first, token(1)).await.2, first);
    }

    async fn a_copy_without_a_reference_is_in_a_slot_of_its_own(b) {
        let a = event("", "a");
        let (_, _, effective) = b.start(&a, &stamp(&I, b.now().as_microsecond(), 0), token(1)).await;
        assert_eq!(effective, CopyVersion::uncontested("a", 0));
    }
}

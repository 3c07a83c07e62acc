//! Leases: which event of a reference may run. Also calls that are repeated, batches, and crashes: starts that were never settled.

use hatchery::internals::register::{ClaimAnswer, CopyVersion, DedupSlot, End, Renewed, Reserve, Reserved};

use super::{I, copied};
use crate::register::bench::{Bench, LEASE, MS, SIDE_BY_SIDE, event, stamp, token};

rules! {
    // Leases.

    async fn one_event_of_a_reference_runs_at_a_time(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        let other = b.publish(&n, &DedupSlot::DatedAt(5)).await;
        b.start(&a, &first, token(1)).await;
        assert_eq!(b.claim(&n, &other, token(2)).await, ClaimAnswer::Busy);
        b.settle(&a, &first, token(1), End::Finished).await;
        b.start(&n, &other, token(2)).await;
    }

    async fn an_event_that_arrives_while_one_runs_gets_its_own_run_afterwards(b) {
        let n = event("1", "n");
        let (a, first) = b.running().await;
        let second = b.publish(&n, &I).await;
        assert_eq!(b.claim(&n, &second, token(2)).await, ClaimAnswer::Busy);
        b.settle(&a, &first, token(1), End::Finished).await;
        b.handle(&n, &second).await;
    }

    async fn events_of_a_reference_that_is_not_exclusive_run_side_by_side(b) {
        let b = b.with_terms(SIDE_BY_SIDE);
        b.start(&event("1", "a"), &CopyVersion::uncontested("a", 0), token(1)).await;
        b.start(&event("1", "n"), &CopyVersion::uncontested("n", 0), token(2)).await;
    }

    async fn one_event_never_runs_twice_at_the_same_time(b) {
        let b = b.with_terms(SIDE_BY_SIDE);
        let a = event("1", "a");
        b.start(&a, &CopyVersion::uncontested("a", 0), token(1)).await;
        assert_eq!(b.claim(&a, &CopyVersion::uncontested("a", 0), token(2)).await, ClaimAnswer::Busy);
    }

    async fn a_lease_ends_unless_it_is_renewed(b) {
        let (a, first) = b.running().await;
        b.advance_almost(LEASE);
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Busy);
        assert_eq!(b.renew(&a, &first, token(1)).await, Renewed::Held);
        b.advance_almost(LEASE);
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Busy);
        b.advance(MS);
        b.start(&a, &first, token(2)).await;
    }

    async fn a_lease_that_ran_out_is_lost_and_does_not_come_back(b) {
        let (a, first) = b.running().await;
        b.advance(LEASE);
        assert_eq!(b.renew(&a, &first, token(1)).await, Renewed::Lost);
        b.start(&a, &first, token(2)).await;
        assert_eq!(b.renew(&a, &first, token(1)).await, Renewed::Lost);
        assert_eq!(b.renew(&a, &first, token(2)).await, Renewed::Held);
    }

    async fn a_settle_counts_although_its_lease_is_lost(b) {
        let (a, first) = b.running().await;
        b.advance(LEASE);
        b.settle(&a, &first, token(1), End::Finished).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Stale);
    }

    async fn a_settle_or_release_gives_back_no_lease_of_another_token(b) {
        let (a, first) = b.running().await;
        b.advance(LEASE);
        let second = b.publish(&event("1", "n"), &I).await;
        b.start(&event("1", "n"), &second, token(2)).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        b.release(&a, &first, token(1)).await;
        assert_eq!(b.renew(&event("1", "n"), &second, token(2)).await, Renewed::Held);
    }

    async fn a_fence_is_above_all_earlier_ones_of_its_reference(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        let (one, _, _) = b.start(&a, &first, token(1)).await;
        b.advance(LEASE);
        let (two, _, _) = b.start(&a, &first, token(2)).await;
        b.settle(&a, &first, token(2), End::Finished).await;
        let (three, _, _) = b.start(&event("1", "n"), &CopyVersion::uncontested("n", 0), token(3)).await;
        assert!(one < two && two < three);
    }

    async fn a_stale_or_replaced_event_is_dropped_even_while_its_reference_is_busy(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        let second = b.publish(&n, &I).await;
        let third = b.publish(&event("1", "z"), &I).await;
        b.start(&event("1", "y"), &CopyVersion::uncontested("y", 0), token(1)).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Stale);
        assert_eq!(b.claim(&n, &second, token(3)).await, ClaimAnswer::Replaced);
        assert_eq!(b.claim(&event("1", "z"), &third, token(4)).await, ClaimAnswer::Busy);
    }

    // Repeated calls.

    async fn a_repeated_claim_gets_the_same_answer(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        let answer = b.claim(&a, &first, token(1)).await;
        b.advance(MS);
        b.publish(&event("1", "n"), &I).await;
        assert_eq!(b.claim(&a, &first, token(1)).await, answer);
        b.advance(LEASE);
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Replaced);
    }

    async fn a_claim_that_is_repeated_after_a_cancel_starts_nothing(b) {
        let n = event("1", "n");
        let (a, first) = b.running().await;
        assert!(b.cancel(&a, None).await[0].running);
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Stale);
        // Perhaps only the call came twice and the event runs, so the lease stays, and its renewal tells of the cancel.
        assert_eq!(b.renew(&a, &first, token(1)).await, Renewed::Cancelled);
        let second = b.publish(&n, &I).await;
        assert_eq!(b.claim(&n, &second, token(2)).await, ClaimAnswer::Busy);
        b.advance(LEASE);
        b.handle(&n, &second).await;
        // A forged version puts the event into a slot of its own.
        let foreign = stamp(&I, 1 << 52, 0);
        b.start(&a, &foreign, token(3)).await;
        b.start(&a, &foreign, token(3)).await;
        b.cancel(&a, Some(&DedupSlot::Event("a".to_owned()))).await;
        assert_eq!(b.claim(&a, &foreign, token(3)).await, ClaimAnswer::Stale);
    }

    async fn repeating_a_call_changes_nothing(b) {
        let (a, first) = b.running().await;
        b.release(&a, &first, token(1)).await;
        b.release(&a, &first, token(1)).await;
        assert_eq!(b.start(&a, &first, token(2)).await.1, 0);
        b.settle(&a, &first, token(2), copied(&b)).await;
        b.settle(&a, &first, token(2), copied(&b)).await;
        b.record(&a, &I, first.version).await;
        assert_eq!(b.claim(&a, &first, token(3)).await, ClaimAnswer::Stale);
        b.handle(&a, &first.next()).await;
    }

    // Batches.

    async fn a_batch_is_answered_in_its_order_and_one_after_the_other(b) {
        let (a, n) = (event("1", "a"), event("2", "n"));
        let reserve = |subject: &_| Reserve {
            subject: Clone::clone(subject), slot: I, due: b.now(), asked_by: None, terms: b.terms
        };
        let now = b.now().as_microsecond();
        let versions = b.register.reserve(&[reserve(&a), reserve(&n), reserve(&a)]).await.unwrap();
        let [Reserved::Version(first), Reserved::Version(other), Reserved::Version(second)] = versions[..] else {
            panic!("a reserve without `asked_by` is never stale: {versions:?}");
        };
        // Another reference may be in another shard, which has a counter of its own.
        assert!(first == now && other >= now && second > first, "{versions:?}");
        let record = |subject: &_, version| b.record_call(subject, &I, version);
        b.register.record(&[record(&a, first), record(&n, other), record(&a, second)]).await.unwrap();
        let claim = |subject, version, n| b.claim_call(subject, &stamp(&I, version, 0), token(n));
        let busy = b.claim_call(&event("1", "b"), &CopyVersion::uncontested("b", 0), token(9));
        let calls = [claim(&a, first, 1), claim(&a, second, 2), busy, claim(&n, other, 3)];
        let answers = b.register.claim(&calls).await.unwrap();
        assert_eq!(answers[0], ClaimAnswer::Replaced);
        assert!(matches!(answers[1], ClaimAnswer::Run { .. }));
        assert_eq!(answers[2], ClaimAnswer::Busy);
        assert!(matches!(answers[3], ClaimAnswer::Run { .. }));
    }

    async fn an_empty_batch_is_answered(b) {
        assert!(b.register.claim(&[]).await.unwrap().is_empty());
        b.register.settle(&[]).await.unwrap();
    }

    async fn a_start_that_was_never_settled_is_a_crash_and_the_third_start_is_alone(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        for crashes in 0..2 {
            assert_eq!(b.start(&a, &first, token(1)).await.1, crashes);
            b.advance(LEASE);
        }
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Alone);
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Alone);
        for crashes in 2..5 {
            let answer = b.claim_alone(&a, &first, token(3)).await;
            assert!(matches!(answer, ClaimAnswer::Run { crashes: n, .. } if n == crashes), "{answer:?}");
            b.advance(LEASE);
        }
    }

    async fn the_answer_alone_takes_no_lease(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        for _ in 0..2 {
            b.start(&a, &first, token(1)).await;
            b.advance(LEASE);
        }
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Alone);
        b.start(&event("1", "n"), &CopyVersion::uncontested("n", 0), token(3)).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Busy);
    }

    async fn a_released_event_has_not_crashed(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        for n in 0..4 {
            assert_eq!(b.start(&a, &first, token(n)).await.1, 0);
            b.release(&a, &first, token(n)).await;
        }
    }

    async fn a_release_keeps_the_earlier_crashes(b) {
        let (a, first) = b.running().await;
        b.advance(LEASE);
        assert_eq!(b.start(&a, &first, token(2)).await.1, 1);
        b.release(&a, &first, token(2)).await;
        assert_eq!(b.start(&a, &first, token(3)).await.1, 1);
    }

    async fn only_the_holder_of_the_lease_releases_it(b) {
        let (a, first) = b.running().await;
        b.release(&a, &first, token(9)).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Busy);
        b.advance(LEASE);
        assert_eq!(b.start(&a, &first, token(2)).await.1, 1);
    }

    async fn a_release_does_not_take_back_the_start_of_another_version(b) {
        let b = b.with_terms(SIDE_BY_SIDE);
        let n = event("1", "n");
        let (a, first) = b.running().await;
        let second = b.publish(&n, &I).await;
        b.start(&n, &second, token(2)).await;
        b.release(&a, &first, token(1)).await;
        b.advance(LEASE);
        assert_eq!(b.start(&n, &second, token(3)).await.1, 1);
    }

    async fn a_later_copy_and_a_newer_version_begin_without_crashes(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        for n in 0..2 {
            b.start(&a, &first, token(n)).await;
            b.advance(LEASE);
        }
        b.settle(&a, &first, token(1), copied(&b)).await;
        assert_eq!(b.start(&a, &first.next(), token(5)).await.1, 0);
        b.advance(LEASE);
        assert_eq!(b.start(&a, &first.next(), token(6)).await.1, 1);
        b.advance(LEASE);
        let second = b.publish(&event("1", "n"), &I).await;
        assert_eq!(b.start(&event("1", "n"), &second, token(7)).await.1, 0);
    }

    async fn a_settle_of_an_older_version_does_not_hide_that_a_newer_one_has_begun(b) {
        let b = b.with_terms(SIDE_BY_SIDE);
        let n = event("1", "n");
        let (a, first) = b.running().await;
        let second = b.publish(&n, &I).await;
        b.start(&n, &second, token(2)).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        b.advance(LEASE);
        assert_eq!(b.start(&n, &second, token(3)).await.1, 1);
    }
}

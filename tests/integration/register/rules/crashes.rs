//! Crashes: starts that were never settled.

use hatchery::internals::register::{ClaimAnswer, CopyVersion, End};

use super::{I, copied};
use crate::register::bench::{Bench, LEASE, SIDE_BY_SIDE, event, token};

rules! {
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

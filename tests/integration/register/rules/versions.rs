//! Versions: *reserve*, *record*, which event replaces which, and events that have waited longer than `max-wait`.

use hatchery::internals::register::{ClaimAnswer, CopyVersion, DedupSlot, Reserved};

use super::I;
use crate::register::bench::{Bench, MAX_WAIT, MS, event, stamp, token};

rules! {
    // Reserve.

    async fn a_version_is_the_time_in_microseconds(b) {
        assert_eq!(b.reserve_due(&event("1", "a"), &I, b.now()).await, b.now().as_microsecond());
    }

    async fn versions_grow_while_the_clock_stands_still(b) {
        let first = b.reserve_due(&event("1", "a"), &I, b.now()).await;
        assert_eq!(b.reserve_due(&event("1", "b"), &DedupSlot::Dated, b.now()).await, first + 1);
    }

    async fn a_running_event_gets_a_version_for_its_follow_up(b) {
        let (a, slot) = (event("1", "a"), DedupSlot::RequeuedAt(5));
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        let answer = b.reserve_for(&a, &slot, b.now(), Some(first)).await;
        assert!(matches!(answer, Reserved::Version(_)), "{answer:?}");
    }

    async fn a_stale_event_gets_no_version_for_its_follow_up(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        assert_eq!(b.reserve_for(&a, &DedupSlot::RequeuedAt(5), b.now(), Some(first)).await, Reserved::Stale);
    }

    async fn a_replaced_event_that_runs_gets_a_version_for_its_follow_up(b) {
        let (a, first) = b.running().await;
        b.publish(&event("1", "b"), &I).await;
        let answer = b.reserve_for(&a, &DedupSlot::RequeuedAt(5), b.now(), Some(first)).await;
        assert!(matches!(answer, Reserved::Version(_)), "{answer:?}");
    }

    async fn a_stale_event_in_a_slot_of_its_own_gets_no_version_for_its_follow_up(b) {
        let a = event("1", "a");
        let alone = CopyVersion::uncontested("a", 0);
        b.handle(&a, &alone).await;
        assert_eq!(b.reserve_for(&a, &DedupSlot::RequeuedAt(5), b.now(), Some(alone)).await, Reserved::Stale);
    }

    // Replacing.

    async fn a_recorded_event_runs_with_a_fence_above_its_version(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        let (fence, crashes, effective) = b.start(&a, &first, token(1)).await;
        assert!(fence > first.version);
        assert_eq!((crashes, effective), (0, first));
    }

    async fn a_newer_event_replaces_the_older_one_once_it_is_recorded(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        let version = b.reserve_due(&n, &I, b.now()).await;
        b.record(&n, &I, version).await;
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Replaced);
        b.start(&n, &stamp(&I, version, 0), token(2)).await;
    }

    async fn a_version_that_was_only_reserved_replaces_nothing(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.reserve_due(&event("1", "n"), &I, b.now()).await;
        b.start(&a, &first, token(1)).await;
    }

    async fn a_late_record_does_not_lower_the_newest_version(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        let second = b.publish(&event("1", "b"), &I).await;
        b.record(&a, &I, first.version).await;
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Replaced);
        b.start(&event("1", "b"), &second, token(2)).await;
    }

    async fn an_immediate_event_never_replaces_a_dated_one(b) {
        let a = event("1", "a");
        for slot in [DedupSlot::Dated, DedupSlot::DatedAt(5), DedupSlot::RequeuedAt(5)] {
            let dated = b.publish(&a, &slot).await;
            b.publish(&event("1", "n"), &I).await;
            b.handle(&a, &dated).await;
        }
    }

    async fn events_of_two_dates_both_run_and_the_newer_one_of_the_same_date(b) {
        let (one, two) = (DedupSlot::DatedAt(1), DedupSlot::DatedAt(2));
        let first = b.publish(&event("1", "a"), &one).await;
        let other = b.publish(&event("1", "b"), &two).await;
        let second = b.publish(&event("1", "c"), &one).await;
        assert_eq!(b.claim(&event("1", "a"), &first, token(1)).await, ClaimAnswer::Replaced);
        b.handle(&event("1", "b"), &other).await;
        b.handle(&event("1", "c"), &second).await;
    }

    async fn an_event_replaces_none_of_another_reference_or_type(b) {
        let a = event("1", "a");
        let mut mail = event("1", "n");
        mail.event_type = "mail".parse().unwrap();
        let first = b.publish(&a, &I).await;
        b.publish(&event("2", "n"), &I).await;
        b.publish(&mail, &I).await;
        b.handle(&a, &first).await;
    }

    // Overdue events.

    async fn an_event_that_waited_longer_than_max_wait_runs_although_a_newer_one_waits(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        b.advance(MAX_WAIT);
        b.publish(&n, &I).await;
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Replaced);
        b.advance(MS);
        b.handle(&a, &first).await;
    }

    async fn an_overdue_run_starts_max_wait_anew(b) {
        let first = b.publish(&event("1", "a"), &I).await;
        let second = b.publish(&event("1", "b"), &I).await;
        b.advance(MAX_WAIT + MS);
        b.publish(&event("1", "c"), &I).await;
        b.handle(&event("1", "a"), &first).await;
        assert_eq!(b.claim(&event("1", "b"), &second, token(1)).await, ClaimAnswer::Replaced);
        b.advance(MAX_WAIT + MS);
        b.handle(&event("1", "b"), &second).await;
    }

    async fn a_run_of_the_newest_event_ends_the_waiting_time(b) {
        let first = b.publish(&event("1", "a"), &I).await;
        b.handle(&event("1", "a"), &first).await;
        b.advance(MAX_WAIT + MS);
        let second = b.publish(&event("1", "b"), &I).await;
        b.publish(&event("1", "c"), &I).await;
        assert_eq!(b.claim(&event("1", "b"), &second, token(1)).await, ClaimAnswer::Replaced);
    }

    async fn an_event_that_has_begun_is_not_overdue_again(b) {
        let n = event("1", "n");
        let (a, first) = b.running().await;
        b.publish(&n, &I).await;
        b.advance(MAX_WAIT + MS);
        assert_eq!(b.claim(&a, &first, token(2)).await, ClaimAnswer::Replaced);
    }

    async fn a_dated_event_is_never_overdue(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &DedupSlot::Dated).await;
        b.publish(&n, &DedupSlot::Dated).await;
        b.advance(MAX_WAIT + MS);
        assert_eq!(b.claim(&a, &first, token(1)).await, ClaimAnswer::Replaced);
    }
}

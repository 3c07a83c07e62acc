//! The slots `e:<id>`, of events that coalesce with nothing.

use hatchery::internals::register::{ClaimAnswer, CopyVersion, End, Renewed};

use super::{I, copied};
use crate::register::bench::{Bench, event, stamp, token};

rules! {
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

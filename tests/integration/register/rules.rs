//! The protocol, rule by rule, on the fake and on Redis.

use hatchery::domain::register::{Claimed, End, Record, Renewed, Reserve, Reserved, Slot, Stamp, Terms};

use super::bench::{BACKLOG, Bench, DAY, DEDUP, EXCLUSIVE, LEASE, MAX_WAIT, MS, SIDE_BY_SIDE, event, stamp, token};

const I: Slot = Slot::Immediate;

/// Each rule is an async function of a bench; it becomes a test on the fake and one on Redis.
macro_rules! rules {
    ($(async fn $rule:ident($bench:ident) $body:block)*) => {
        $(async fn $rule($bench: Bench) $body)*

        mod fake {
            $(#[tokio::test]
            async fn $rule() {
                super::$rule(super::Bench::memory()).await;
            })*
        }

        mod redis {
            $(#[tokio::test]
            async fn $rule() {
                super::$rule(super::Bench::redis().await).await;
            })*
        }
    };
}

fn copied(bench: &Bench) -> End {
    End::Copied { due: bench.now() }
}

rules! {
    // Reserve.

    async fn a_version_is_the_time_in_microseconds(b) {
        assert_eq!(b.reserve_due(&event("1", "a"), &I, b.now()).await, b.now().as_microsecond());
    }

    async fn versions_grow_even_while_the_clock_stands_still(b) {
        let first = b.reserve_due(&event("1", "a"), &I, b.now()).await;
        assert_eq!(b.reserve_due(&event("2", "b"), &I, b.now()).await, first + 1);
    }

    async fn an_asker_that_still_runs_gets_its_follow_up(b) {
        let (a, slot) = (event("1", "a"), Slot::RequeuedAt(5));
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        let answer = b.reserve_for(&a, &slot, b.now(), Some(first)).await;
        assert!(matches!(answer, Reserved::Version(_)), "{answer:?}");
    }

    async fn an_asker_that_is_stale_by_now_gets_no_follow_up(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        assert_eq!(b.reserve_for(&a, &Slot::RequeuedAt(5), b.now(), Some(first)).await, Reserved::Stale);
    }

    async fn an_asker_that_is_merely_replaced_gets_its_follow_up(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.publish(&event("1", "b"), &I).await;
        let answer = b.reserve_for(&a, &Slot::RequeuedAt(5), b.now(), Some(first)).await;
        assert!(matches!(answer, Reserved::Version(_)), "{answer:?}");
    }

    async fn an_asker_in_a_slot_of_its_own_is_looked_for_there(b) {
        let a = event("1", "a");
        let alone = Stamp::alone("a", 0);
        b.handle(&a, &alone).await;
        assert_eq!(b.reserve_for(&a, &Slot::RequeuedAt(5), b.now(), Some(alone)).await, Reserved::Stale);
    }

    // What replaces what.

    async fn a_recorded_event_runs_with_a_fence_above_its_version(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        let (fence, crashes, effective) = b.start(&a, &first, token(1)).await;
        assert!(fence > first.version);
        assert_eq!((crashes, effective), (0, first));
    }

    async fn a_newer_event_replaces_the_older_once_the_broker_has_it(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        let version = b.reserve_due(&n, &I, b.now()).await;
        b.record(&n, &I, version).await;
        assert_eq!(b.claim(&a, &first, token(1)).await, Claimed::Replaced);
        b.start(&n, &stamp(&I, version, 0), token(2)).await;
    }

    async fn a_version_that_was_only_reserved_replaces_nothing(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.reserve_due(&event("1", "n"), &I, b.now()).await;
        b.start(&a, &first, token(1)).await;
    }

    async fn a_record_that_comes_late_does_not_lower_the_newest(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        let second = b.publish(&event("1", "b"), &I).await;
        b.record(&a, &I, first.version).await;
        assert_eq!(b.claim(&a, &first, token(1)).await, Claimed::Replaced);
        b.start(&event("1", "b"), &second, token(2)).await;
    }

    async fn an_immediate_event_never_replaces_a_dated_one(b) {
        let a = event("1", "a");
        for slot in [Slot::Dated, Slot::DatedAt(5), Slot::RequeuedAt(5)] {
            let dated = b.publish(&a, &slot).await;
            b.publish(&event("1", "n"), &I).await;
            b.handle(&a, &dated).await;
        }
    }

    async fn events_of_two_dates_both_run_and_of_the_same_date_the_newer(b) {
        let (one, two) = (Slot::DatedAt(1), Slot::DatedAt(2));
        let first = b.publish(&event("1", "a"), &one).await;
        let other = b.publish(&event("1", "b"), &two).await;
        let second = b.publish(&event("1", "c"), &one).await;
        assert_eq!(b.claim(&event("1", "a"), &first, token(1)).await, Claimed::Replaced);
        b.handle(&event("1", "b"), &other).await;
        b.handle(&event("1", "c"), &second).await;
    }

    async fn references_and_types_have_nothing_to_do_with_each_other(b) {
        let a = event("1", "a");
        let mut mail = event("1", "n");
        mail.event_type = "mail".parse().unwrap();
        let first = b.publish(&a, &I).await;
        b.publish(&event("2", "n"), &I).await;
        b.publish(&mail, &I).await;
        b.handle(&a, &first).await;
    }

    // The mark.

    async fn what_is_finished_does_not_run_again(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Stale);
    }

    async fn a_finished_version_is_finished_in_all_its_copies(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        assert_eq!(b.claim(&a, &first.next(), token(2)).await, Claimed::Stale);
    }

    async fn a_later_copy_makes_the_earlier_stale_and_runs_itself(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Stale);
        b.handle(&a, &first.next()).await;
    }

    async fn a_copy_whose_settlement_was_lost_runs_and_then_the_earlier_is_stale(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.advance(LEASE);
        b.start(&a, &first.next(), token(2)).await;
        assert_eq!(b.claim(&a, &first, token(3)).await, Claimed::Stale);
    }

    async fn finishing_an_earlier_copy_finishes_the_later_too(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        assert_eq!(b.claim(&a, &first.next(), token(2)).await, Claimed::Stale);
    }

    async fn a_late_copy_does_not_revive_what_is_finished(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        assert_eq!(b.claim(&a, &first.next(), token(2)).await, Claimed::Stale);
    }

    async fn a_newer_event_that_has_begun_makes_the_older_stale_even_unrecorded(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        let newer = stamp(&I, b.reserve_due(&n, &I, b.now()).await, 0);
        b.start(&n, &newer, token(1)).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Stale);
    }

    async fn the_mark_is_never_lowered_by_a_late_settlement(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.advance(LEASE);
        let newer = b.publish(&n, &I).await;
        b.handle(&n, &newer).await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        assert_eq!(b.claim(&n, &newer, token(2)).await, Claimed::Stale);
        assert_eq!(b.claim(&a, &first.next(), token(3)).await, Claimed::Stale);
    }

    async fn finished_is_a_slots_and_not_a_references(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let dated = b.publish(&a, &Slot::DatedAt(1)).await;
        let immediate = b.publish(&n, &I).await;
        b.handle(&n, &immediate).await;
        b.handle(&a, &dated).await;
    }

    async fn a_settlement_counts_though_redis_has_forgotten_the_claim(b) {
        let a = event("1", "a");
        let unknown = stamp(&I, b.now().as_microsecond(), 0);
        b.settle(&a, &unknown, token(1), End::Finished).await;
        assert_eq!(b.claim(&a, &unknown, token(2)).await, Claimed::Stale);
    }

    // Overdue.

    async fn an_event_put_off_for_longer_than_max_wait_runs_although_a_newer_one_waits(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        b.advance(MAX_WAIT);
        b.publish(&n, &I).await;
        assert_eq!(b.claim(&a, &first, token(1)).await, Claimed::Replaced);
        b.advance(MS);
        b.handle(&a, &first).await;
    }

    async fn after_an_overdue_run_the_waiting_begins_anew(b) {
        let first = b.publish(&event("1", "a"), &I).await;
        let second = b.publish(&event("1", "b"), &I).await;
        b.advance(MAX_WAIT + MS);
        b.publish(&event("1", "c"), &I).await;
        b.handle(&event("1", "a"), &first).await;
        assert_eq!(b.claim(&event("1", "b"), &second, token(1)).await, Claimed::Replaced);
        b.advance(MAX_WAIT + MS);
        b.handle(&event("1", "b"), &second).await;
    }

    async fn once_the_newest_runs_nothing_waits_any_more(b) {
        let first = b.publish(&event("1", "a"), &I).await;
        b.handle(&event("1", "a"), &first).await;
        b.advance(MAX_WAIT + MS);
        let second = b.publish(&event("1", "b"), &I).await;
        b.publish(&event("1", "c"), &I).await;
        assert_eq!(b.claim(&event("1", "b"), &second, token(1)).await, Claimed::Replaced);
    }

    async fn what_has_begun_is_not_overdue_again(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.publish(&n, &I).await;
        b.advance(MAX_WAIT + MS);
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Replaced);
    }

    async fn a_dated_event_is_never_overdue(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &Slot::Dated).await;
        b.publish(&n, &Slot::Dated).await;
        b.advance(MAX_WAIT + MS);
        assert_eq!(b.claim(&a, &first, token(1)).await, Claimed::Replaced);
    }

    // Later.

    async fn a_rescheduled_copy_waits_and_then_runs(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        let date = b.after(DAY);
        b.postpone(&a, &first, date).await;
        let answer = b.claim(&a, &first, token(1)).await;
        assert_eq!(answer, Claimed::Later(jiff::Timestamp::from_millisecond(date.as_millisecond()).unwrap()));
        b.advance(DAY);
        b.handle(&a, &first).await;
    }

    async fn a_reschedule_holds_back_that_generation_alone(b) {
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
        assert_eq!(b.claim(&a, &first, token(1)).await, Claimed::Replaced);
    }

    // The lease.

    async fn one_event_of_a_reference_runs_at_a_time(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        let other = b.publish(&n, &Slot::DatedAt(5)).await;
        b.start(&a, &first, token(1)).await;
        assert_eq!(b.claim(&n, &other, token(2)).await, Claimed::Busy);
        b.settle(&a, &first, token(1), End::Finished).await;
        b.start(&n, &other, token(2)).await;
    }

    async fn an_event_that_arrives_while_one_runs_gets_its_own_run_afterwards(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        let second = b.publish(&n, &I).await;
        assert_eq!(b.claim(&n, &second, token(2)).await, Claimed::Busy);
        b.settle(&a, &first, token(1), End::Finished).await;
        b.handle(&n, &second).await;
    }

    async fn without_exclusive_events_of_one_reference_run_side_by_side(b) {
        let b = b.with_terms(SIDE_BY_SIDE);
        b.start(&event("1", "a"), &Stamp::alone("a", 0), token(1)).await;
        b.start(&event("1", "n"), &Stamp::alone("n", 0), token(2)).await;
    }

    async fn one_event_never_runs_twice_at_a_time(b) {
        let b = b.with_terms(SIDE_BY_SIDE);
        let a = event("1", "a");
        b.start(&a, &Stamp::alone("a", 0), token(1)).await;
        assert_eq!(b.claim(&a, &Stamp::alone("a", 0), token(2)).await, Claimed::Busy);
    }

    async fn a_lease_ends_unless_it_is_renewed(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.advance_almost(LEASE);
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Busy);
        assert_eq!(b.renew(&a, &first, token(1)).await, Renewed::Held);
        b.advance_almost(LEASE);
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Busy);
        b.advance(MS);
        b.start(&a, &first, token(2)).await;
    }

    async fn a_lease_that_ran_out_is_lost_and_does_not_come_back(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.advance(LEASE);
        assert_eq!(b.renew(&a, &first, token(1)).await, Renewed::Lost);
        b.start(&a, &first, token(2)).await;
        assert_eq!(b.renew(&a, &first, token(1)).await, Renewed::Lost);
        assert_eq!(b.renew(&a, &first, token(2)).await, Renewed::Held);
    }

    async fn the_outcome_of_a_lost_lease_counts_all_the_same(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.advance(LEASE);
        b.settle(&a, &first, token(1), End::Finished).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Stale);
    }

    async fn nobody_gives_back_a_lease_that_somebody_else_holds(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
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
        let (three, _, _) = b.start(&event("2", "n"), &Stamp::alone("n", 0), token(3)).await;
        assert!(one < two && two < three);
    }

    async fn what_is_stale_or_replaced_is_dropped_even_while_its_reference_is_busy(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        let second = b.publish(&n, &I).await;
        let third = b.publish(&event("1", "z"), &I).await;
        b.start(&event("1", "y"), &Stamp::alone("y", 0), token(1)).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Stale);
        assert_eq!(b.claim(&n, &second, token(3)).await, Claimed::Replaced);
        assert_eq!(b.claim(&event("1", "z"), &third, token(4)).await, Claimed::Busy);
    }

    // Repetition.

    async fn a_repeated_claim_gets_the_same_answer(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        let answer = b.claim(&a, &first, token(1)).await;
        b.advance(MS);
        b.publish(&event("1", "n"), &I).await;
        assert_eq!(b.claim(&a, &first, token(1)).await, answer);
        b.advance(LEASE);
        assert_eq!(b.claim(&a, &first, token(1)).await, Claimed::Replaced);
    }

    async fn repeating_a_call_changes_nothing(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.release(&a, &first, token(1)).await;
        b.release(&a, &first, token(1)).await;
        assert_eq!(b.start(&a, &first, token(2)).await.1, 0);
        b.settle(&a, &first, token(2), copied(&b)).await;
        b.settle(&a, &first, token(2), copied(&b)).await;
        b.record(&a, &I, first.version).await;
        assert_eq!(b.claim(&a, &first, token(3)).await, Claimed::Stale);
        b.handle(&a, &first.next()).await;
    }

    // Crashes.

    async fn a_start_that_was_never_settled_counts_and_the_third_is_alone(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        for crashes in 0..2 {
            assert_eq!(b.start(&a, &first, token(1)).await.1, crashes);
            b.advance(LEASE);
        }
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Alone);
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Alone);
        for crashes in 2..5 {
            let answer = b.claim_alone(&a, &first, token(3)).await;
            assert!(matches!(answer, Claimed::Run { crashes: n, .. } if n == crashes), "{answer:?}");
            b.advance(LEASE);
        }
    }

    async fn being_told_to_run_alone_takes_no_lease(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        for _ in 0..2 {
            b.start(&a, &first, token(1)).await;
            b.advance(LEASE);
        }
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Alone);
        b.start(&event("1", "n"), &Stamp::alone("n", 0), token(3)).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Busy);
    }

    async fn what_is_given_back_on_purpose_is_no_crash(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        for n in 0..4 {
            assert_eq!(b.start(&a, &first, token(n)).await.1, 0);
            b.release(&a, &first, token(n)).await;
        }
    }

    async fn giving_back_keeps_the_crashes_before_it(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.advance(LEASE);
        assert_eq!(b.start(&a, &first, token(2)).await.1, 1);
        b.release(&a, &first, token(2)).await;
        assert_eq!(b.start(&a, &first, token(3)).await.1, 1);
    }

    async fn only_who_holds_the_lease_takes_the_start_back(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.release(&a, &first, token(9)).await;
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Busy);
        b.advance(LEASE);
        assert_eq!(b.start(&a, &first, token(2)).await.1, 1);
    }

    async fn a_release_does_not_take_back_the_start_of_another_version(b) {
        let b = b.with_terms(SIDE_BY_SIDE);
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
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

    async fn settling_an_older_version_does_not_hide_that_a_newer_one_has_begun(b) {
        let b = b.with_terms(SIDE_BY_SIDE);
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        let second = b.publish(&n, &I).await;
        b.start(&n, &second, token(2)).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        b.advance(LEASE);
        assert_eq!(b.start(&n, &second, token(3)).await.1, 1);
    }

    // What competes with nothing.

    async fn an_event_that_competes_with_nothing_is_only_kept_from_running_twice(b) {
        for id in ["a", "b", "c"] {
            b.handle(&event("1", id), &Stamp::alone(id, 0)).await;
            assert_eq!(b.claim(&event("1", id), &Stamp::alone(id, 0), token(1)).await, Claimed::Stale);
        }
    }

    async fn its_copies_are_told_apart_by_their_generation(b) {
        let a = event("", "a");
        let alone = Stamp::alone("a", 0);
        b.start(&a, &alone, token(1)).await;
        b.settle(&a, &alone, token(1), copied(&b)).await;
        assert_eq!(b.claim(&a, &alone, token(2)).await, Claimed::Stale);
        b.handle(&a, &alone.next()).await;
    }

    async fn its_version_counts_as_0_whatever_it_carries(b) {
        let a = event("1", "a");
        let odd = Stamp { version: 77, ..Stamp::alone("a", 0) };
        let (_, _, effective) = b.start(&a, &odd, token(1)).await;
        assert_eq!(effective, Stamp::alone("a", 0));
        b.settle(&a, &odd, token(1), End::Finished).await;
        assert_eq!(b.claim(&a, &Stamp::alone("a", 0), token(2)).await, Claimed::Stale);
    }

    async fn a_version_that_nobody_gave_out_competes_with_nothing(b) {
        let a = event("1", "a");
        let now = b.now().as_microsecond();
        for (n, version) in [(1, 1 << 53), (2, now + 1_000_000), (3, 0), (4, -5)] {
            let id = format!("foreign-{n}");
            let foreign = event("1", &id);
            let (_, _, effective) = b.start(&foreign, &stamp(&I, version, 0), token(n)).await;
            assert_eq!(effective, Stamp::alone(&id, 0));
            assert_eq!(b.claim(&foreign, &stamp(&I, version, 0), token(n)).await, Claimed::Run {
                fence: now + i64::try_from(n).unwrap() - 1, crashes: 0, stamp: effective.clone()
            });
            assert_eq!(b.renew(&foreign, &effective, token(n)).await, Renewed::Held);
            b.settle(&foreign, &effective, token(n), End::Finished).await;
            assert_eq!(b.claim(&foreign, &stamp(&I, version, 0), token(9)).await, Claimed::Stale);
        }
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
    }

    async fn settling_and_recording_such_a_version_hides_nothing_either(b) {
        let (a, foreign) = (event("1", "a"), event("1", "foreign"));
        b.record(&foreign, &I, 1 << 53).await;
        b.settle(&foreign, &stamp(&I, 1 << 53, 0), token(1), End::Finished).await;
        assert_eq!(b.claim(&foreign, &Stamp::alone("foreign", 0), token(2)).await, Claimed::Stale);
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
    }

    async fn the_highest_version_given_counts_though_it_is_ahead_of_the_clock(b) {
        let a = event("1", "a");
        let mut first = b.publish(&a, &I).await;
        for _ in 0..5 {
            first = b.publish(&a, &I).await;
        }
        assert!(first.version > b.now().as_microsecond());
        assert_eq!(b.start(&a, &first, token(1)).await.2, first);
    }

    async fn a_copy_without_a_reference_competes_with_nothing(b) {
        let a = event("", "a");
        let (_, _, effective) = b.start(&a, &stamp(&I, b.now().as_microsecond(), 0), token(1)).await;
        assert_eq!(effective, Stamp::alone("a", 0));
    }

    // How long keys live.

    async fn what_is_finished_is_remembered_for_the_dedup_retention(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        b.advance_almost(DEDUP);
        assert_eq!(b.claim(&a, &first, token(1)).await, Claimed::Stale);
        b.advance(MS);
        b.start(&a, &first, token(2)).await;
    }

    async fn what_came_late_is_remembered_for_twice_as_long_as_it_was_late(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.settle_late(&a, &first, token(1), End::Finished, b.before(DAY)).await;
        b.advance_almost(2 * DAY);
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Stale);
        b.advance(MS);
        b.start(&a, &first, token(2)).await;
    }

    async fn what_is_still_open_is_remembered_for_the_backlog_retention_beyond_its_due_time(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let slot = Slot::Dated;
        let first = b.publish_due(&a, &slot, b.after(30 * DAY)).await;
        b.publish_due(&n, &slot, b.after(2 * DAY)).await;
        b.advance_almost(30 * DAY + BACKLOG);
        assert_eq!(b.claim(&a, &first, token(1)).await, Claimed::Replaced);
        b.advance(MS);
        b.start(&a, &first, token(1)).await;
    }

    async fn the_mark_of_what_is_finished_stays_while_a_newer_event_waits(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.publish(&event("1", "n"), &I).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        b.advance_almost(BACKLOG);
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Stale);
    }

    async fn what_has_begun_and_is_not_settled_is_remembered_for_the_backlog_retention(b) {
        let a = event("1", "a");
        b.start(&a, &Stamp::alone("a", 0), token(1)).await;
        b.advance_almost(BACKLOG);
        assert_eq!(b.start(&a, &Stamp::alone("a", 0), token(2)).await.1, 1);
    }

    async fn the_mark_outlives_a_replaced_copy_that_is_due_later(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let slot = Slot::Dated;
        let first = b.publish_due(&a, &slot, b.after(30 * DAY)).await;
        let second = b.publish(&n, &slot).await;
        b.handle(&n, &second).await;
        b.advance_almost(30 * DAY + BACKLOG);
        assert_eq!(b.claim(&a, &first, token(1)).await, Claimed::Stale);
    }

    async fn the_mark_outlives_a_retry_that_is_due_later(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.settle(&a, &first, token(1), End::Copied { due: b.after(30 * DAY) }).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        b.advance_almost(30 * DAY + BACKLOG);
        assert_eq!(b.claim(&a, &first.next(), token(1)).await, Claimed::Stale);
    }

    async fn a_sooner_due_time_does_not_lower_the_latest(b) {
        let a = event("1", "a");
        let first = b.publish_due(&a, &Slot::Dated, b.after(30 * DAY)).await;
        b.reserve_due(&event("1", "n"), &Slot::Dated, b.now()).await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        b.advance(30 * DAY);
        assert_eq!(b.claim(&a, &first, token(1)).await, Claimed::Stale);
    }

    async fn renewing_a_lease_keeps_the_mark(b) {
        let b = b.with_terms(Terms { lease: 2 * BACKLOG, ..EXCLUSIVE });
        let (a, n) = (event("1", "a"), event("1", "n"));
        let older = b.publish(&a, &I).await;
        let newer = b.publish(&n, &I).await;
        b.start(&n, &newer, token(1)).await;
        b.advance_almost(BACKLOG);
        assert_eq!(b.renew(&n, &newer, token(1)).await, Renewed::Held);
        b.advance_almost(BACKLOG);
        assert_eq!(b.claim(&a, &older, token(2)).await, Claimed::Stale);
    }

    async fn a_record_that_comes_late_shortens_nothing(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        b.start(&a, &first, token(1)).await;
        b.settle_late(&a, &first, token(1), End::Finished, b.before(DAY)).await;
        b.record(&a, &I, first.version).await;
        b.advance_almost(2 * DAY);
        assert_eq!(b.claim(&a, &first, token(2)).await, Claimed::Stale);
    }

    async fn one_slot_goes_while_another_of_its_reference_stays(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let dated = b.publish_due(&n, &Slot::Dated, b.after(DAY)).await;
        b.settle(&n, &dated, token(1), End::Finished).await;
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        b.advance(DEDUP);
        assert_eq!(b.claim(&n, &dated, token(1)).await, Claimed::Stale);
        b.start(&a, &first, token(2)).await;
    }

    // Batches.

    async fn a_batch_is_answered_in_its_order_and_one_after_the_other(b) {
        let (a, n) = (event("1", "a"), event("2", "n"));
        let reserve = |subject: &_| Reserve {
            subject: Clone::clone(subject), slot: I, due: b.now(), asked_by: None, terms: b.terms
        };
        let now = b.now().as_microsecond();
        let versions = b.register.reserve(&[reserve(&a), reserve(&n), reserve(&a)]).await.unwrap();
        assert_eq!(versions, (0..3).map(|n| Reserved::Version(now + n)).collect::<Vec<_>>());
        let record = |subject: &_, version| Record { subject: Clone::clone(subject), slot: I, version, terms: b.terms };
        b.register.record(&[record(&a, now), record(&n, now + 1), record(&a, now + 2)]).await.unwrap();
        let claim = |subject, version, n| b.claim_call(subject, &stamp(&I, version, 0), token(n));
        let busy = b.claim_call(&event("1", "b"), &Stamp::alone("b", 0), token(9));
        let calls = [claim(&a, now, 1), claim(&a, now + 2, 2), busy, claim(&n, now + 1, 3)];
        let answers = b.register.claim(&calls).await.unwrap();
        assert_eq!(answers[0], Claimed::Replaced);
        assert!(matches!(answers[1], Claimed::Run { .. }));
        assert_eq!(answers[2], Claimed::Busy);
        assert!(matches!(answers[3], Claimed::Run { .. }));
    }

    async fn an_empty_batch_is_answered(b) {
        assert!(b.register.claim(&[]).await.unwrap().is_empty());
        b.register.settle(&[]).await.unwrap();
    }
}

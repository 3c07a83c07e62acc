//! The index of waiting events, which people read.

use bytes::Bytes;
use hatchery::internals::register::{
    CopyVersion, DedupSlot, End, Note, Record, Stage, Subject,
    index::{Find, Shown},
};

use super::{I, copied};
use crate::register::bench::{BACKLOG, Bench, DAY, LEASE, MS, event, token};

fn alone(id: &str) -> DedupSlot {
    DedupSlot::Event(id.to_owned())
}

/// Records an event in a slot of its own.
async fn publish_alone(b: &Bench, subject: &Subject) {
    b.record(subject, &alone(&subject.id), 0).await;
}

fn noted(stage: Stage, attempts: u32, reason: &str) -> Note {
    Note { stage, attempts, reason: Some(reason.to_owned()) }
}

rules! {
    async fn waiting_events_are_listed_by_due_time_until_they_are_handled(b) {
        let [a, n, z] = ["a", "n", "z"].map(|id| event(id, id));
        let late = b.publish_due(&a, &DedupSlot::Dated, b.after(2 * DAY)).await;
        b.publish_due(&n, &DedupSlot::DatedAt(5), b.after(DAY)).await;
        publish_alone(&b, &z).await;
        assert_eq!(b.listed().await, ["z", "n", "a"]);
        b.handle(&z, &CopyVersion::uncontested("z", 0)).await;
        b.handle(&a, &late).await;
        assert_eq!(b.listed().await, ["n"]);
    }

    async fn an_entry_shows_the_published_event(b) {
        let a = event("1", "0197c2a4-8c5e-7d3a-9b1f-2e4d6c8a0b12");
        let version = b.reserve_due(&a, &I, b.after(DAY)).await;
        let reason = Some("message: queue=hr-changes".to_owned());
        let due = b.after(DAY);
        b.register.record(&[Record { due, reason, ..b.record_call(&a, &I, version) }]).await.unwrap();
        let shown = b.list(1).await.remove(0);
        let entry = shown.entry.clone().unwrap();
        assert_eq!((&entry.subject, &entry.slot), (&a, &I));
        assert_eq!(entry.due.as_millisecond(), due.as_millisecond());
        assert_eq!(entry.note, noted(Stage::Waiting, 0, "message: queue=hr-changes"));
        assert_eq!(shown.state.newest, version);
        // A list reads no leases.
        assert_eq!(b.look(&a).await, [Shown { leased: Some(false), ..shown }]);
    }

    async fn an_event_without_coalescing_has_no_slot_until_it_is_claimed(b) {
        for a in [event("1", "a"), event("", "n")] {
            publish_alone(&b, &a).await;
            let shown = b.list(9).await.remove(0);
            assert_eq!((shown.state.until, shown.slot), (0, alone(&a.id)));
            assert_eq!(shown.entry.unwrap().subject, a);
            b.start(&a, &CopyVersion::uncontested(&a.id, 0), token(1)).await;
            let shown = b.list(9).await.remove(0);
            assert!(shown.state.begun && shown.entry.is_some());
            b.settle(&a, &CopyVersion::uncontested(&a.id, 0), token(1), End::Finished).await;
            assert!(b.listed().await.is_empty());
        }
    }

    async fn a_record_after_the_run_lists_nothing(b) {
        let a = event("1", "a");
        b.handle(&a, &CopyVersion::uncontested("a", 0)).await;
        publish_alone(&b, &a).await;
        let first = b.publish(&a, &I).await;
        b.handle(&a, &first).await;
        b.record(&a, &I, first.version).await;
        assert!(b.listed().await.is_empty());
    }

    async fn an_event_that_starts_before_it_is_recorded_is_listed_with_its_message(b) {
        let a = event("1", "a");
        let version = b.reserve_due(&a, &I, b.now()).await;
        for slot in [I, alone("a")] {
            let version = if slot == I { version } else { 0 };
            let stamp = CopyVersion { slot: slot.clone(), version, generation: 0 };
            let kept = Some(Bytes::from_static(b"message"));
            let record = Record { kept: kept.clone(), ..b.record_call(&a, &slot, version) };
            b.start(&a, &stamp, token(1)).await;
            b.register.record(std::slice::from_ref(&record)).await.unwrap();
            assert_eq!(b.listed().await, ["a"]);
            assert_eq!(b.kept(&a, &slot).await, kept);
            b.settle(&a, &stamp, token(1), copied(&b)).await;
            assert_eq!(b.kept(&a, &slot).await, kept);
            b.handle(&a, &stamp.next()).await;
            b.register.record(&[record]).await.unwrap();
            assert!(b.listed().await.is_empty());
        }
    }

    async fn an_event_that_failed_before_it_is_recorded_is_listed_as_failed_with_its_message(b) {
        let a = event("1", "a");
        let version = b.reserve_due(&a, &I, b.now()).await;
        for slot in [I, alone("a")] {
            let version = if slot == I { version } else { 0 };
            let stamp = CopyVersion { slot: slot.clone(), version, generation: 0 };
            b.start(&a, &stamp, token(1)).await;
            let (due, note) = (b.after(DAY), noted(Stage::DeadLetter, 1, "given up"));
            b.settle(&a, &stamp, token(1), End::Copied { due, note: note.clone() }).await;
            for (message, other) in [("message", "a"), ("another", "a"), ("another's", "b")] {
                let kept = Some(Bytes::from_static(message.as_bytes()));
                let of = Subject { id: other.to_owned(), ..a.clone() };
                let record = Record { kept, ..b.record_call(&of, &slot, version) };
                b.register.record(&[record]).await.unwrap();
                let entry = b.list(9).await.remove(0).entry.unwrap();
                assert_eq!((entry.subject, entry.note), (a.clone(), note.clone()));
                assert_eq!(b.kept(&a, &slot).await.as_deref(), Some(&b"message"[..]));
            }
            b.cancel(&a, Some(&slot)).await;
        }
    }

    async fn only_the_newest_event_of_a_slot_is_listed(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish(&a, &I).await;
        b.publish(&n, &I).await;
        b.record(&a, &I, first.version).await;
        assert_eq!(b.listed().await, ["n"]);
    }

    async fn a_retry_and_a_dead_letter_are_shown_as_such(b) {
        let a = event("1", "a");
        let first = b.publish(&a, &I).await;
        let mut stamp = first;
        for (n, note) in [(1, noted(Stage::Retry, 1, "refused")), (2, noted(Stage::DeadLetter, 2, "given up"))] {
            b.start(&a, &stamp, token(n)).await;
            let due = b.after(DAY);
            b.settle(&a, &stamp, token(n), End::Copied { due, note: note.clone() }).await;
            let entry = b.list(9).await.remove(0).entry.unwrap();
            assert_eq!((entry.due.as_millisecond(), entry.note), (due.as_millisecond(), note));
            stamp = stamp.next();
        }
    }

    async fn a_late_settle_hides_no_newer_event(b) {
        let n = event("1", "n");
        let (a, first) = b.running().await;
        let second = b.publish(&n, &I).await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        b.settle(&a, &first, token(1), End::Finished).await;
        assert_eq!(b.listed().await, ["n"]);
        b.handle(&n, &second).await;
        b.settle(&n, &second, token(2), copied(&b)).await;
        assert!(b.listed().await.is_empty());
    }

    async fn a_rescheduled_event_is_listed_at_its_new_time(b) {
        let (a, n) = (event("1", "a"), event("", "n"));
        let first = b.publish(&a, &I).await;
        publish_alone(&b, &n).await;
        b.postpone(&a, &first, b.after(2 * DAY)).await;
        b.postpone(&n, &CopyVersion::uncontested("n", 0), b.after(3 * DAY)).await;
        let due: Vec<_> = b.list(9).await.into_iter().map(|shown| shown.entry.unwrap().due.as_millisecond()).collect();
        assert_eq!(due, [b.after(2 * DAY).as_millisecond(), b.after(3 * DAY).as_millisecond()]);
    }

    async fn a_cancelled_event_is_not_listed_any_more(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        b.publish(&a, &I).await;
        b.publish(&a, &DedupSlot::DatedAt(7)).await;
        publish_alone(&b, &n).await;
        b.cancel(&a, None).await;
        assert_eq!(b.listed().await, ["n"]);
        // The event was published without a version, so only the index knows it.
        let cancelled = b.cancel(&n, Some(&alone("n"))).await;
        assert!(cancelled[0].waiting && !cancelled[0].running);
        assert!(b.listed().await.is_empty());
        assert!(!b.cancel(&n, Some(&alone("n"))).await[0].waiting);
    }

    async fn an_entry_expires_with_its_slot(b) {
        let (a, n) = (event("1", "a"), event("", "n"));
        b.publish(&a, &I).await;
        publish_alone(&b, &n).await;
        b.advance_almost(BACKLOG);
        assert_eq!(b.listed().await, ["n", "a"]);
        b.advance(MS);
        assert!(b.listed().await.is_empty());
        assert!(b.look(&a).await.is_empty() && b.look(&n).await.is_empty());
        // A new slot of the same name does not bring the entry back.
        b.reserve_due(&a, &I, b.now()).await;
        assert!(b.listed().await.is_empty());
    }

    async fn pages_are_complete_although_many_events_are_due_at_the_same_time(b) {
        for n in 0..20 {
            let at = if n < 15 { b.now() } else { b.after(DAY) };
            b.publish_due(&event(&n.to_string(), &n.to_string()), &DedupSlot::Dated, at).await;
        }
        let all = b.list(100).await;
        assert_eq!(all.len(), 20);
        for page in [1, 3, 7, 20] {
            assert_eq!(b.list(page).await, all);
        }
    }

    async fn a_page_is_restricted_to_a_type_and_a_time(b) {
        for (n, days) in (0..5).zip(0_u32..) {
            b.publish_due(&event(&format!("{n}"), &format!("{n}")), &DedupSlot::Dated, b.after(days * DAY)).await;
        }
        let mut mail = event("9", "mail");
        mail.event_type = "mail".parse().unwrap();
        b.publish_due(&mail, &DedupSlot::Dated, b.after(DAY)).await;
        let (due_from, due_before) = (Some(b.after(DAY)), Some(b.after(3 * DAY)));
        let find = Find { due_from, due_before, ..Find::first(event("", "").event_type, 9) };
        let found = b.index.find(&find).await.unwrap();
        let ids: Vec<_> = found.events.into_iter().map(|shown| shown.entry.unwrap().subject.id).collect();
        assert_eq!((ids, found.next), (vec!["1".to_owned(), "2".to_owned()], None));
    }

    async fn a_page_of_a_reference_has_only_events_in_slots_of_their_own(b) {
        let mut expected = Vec::new();
        for n in 0..20 {
            let at = if n < 15 { b.now() } else { b.after(DAY) };
            for (reference, id) in [("1", format!("one-{n:02}")), ("2", format!("other-{n:02}"))] {
                let event = event(reference, &id);
                b.publish_due(&event, &DedupSlot::Event(id.clone()), at).await;
                b.publish_due(&event, &DedupSlot::DatedAt(n), at).await;
            }
            expected.push(format!("one-{n:02}"));
        }
        for limit in [1, 3, 50] {
            let (event_type, uncontested_of) = (event("", "").event_type, event("1", "").reference);
            let mut find = Find { event_type, due_from: None, due_before: None, uncontested_of, after: None, limit };
            let mut ids = Vec::new();
            loop {
                let found = b.index.find(&find).await.unwrap();
                ids.extend(found.events.into_iter().map(|shown| shown.entry.unwrap().subject.id));
                find.after = found.next;
                if find.after.is_none() {
                    break;
                }
            }
            assert_eq!(ids, expected, "with pages of {limit}");
        }
    }

    async fn a_look_shows_every_slot_of_a_reference(b) {
        let a = event("1", "a");
        for slot in [DedupSlot::DatedAt(7), I, DedupSlot::First] {
            b.publish(&a, &slot).await;
        }
        b.publish(&event("2", "n"), &I).await;
        b.cancel(&a, Some(&I)).await;
        let shown = b.look(&a).await;
        let slots: Vec<_> = shown.iter().map(|shown| (shown.slot.to_string(), shown.entry.is_some())).collect();
        assert_eq!(slots, [("d:7".to_owned(), true), ("f".to_owned(), true), ("i".to_owned(), false)]);
        assert!(shown[2].state.cancelled);
    }

    async fn a_message_is_kept_until_its_event_is_handled_or_replaced(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        let first = b.publish_kept(&a, &I, "first").await;
        assert_eq!(b.kept(&a, &I).await, Some(Bytes::from_static(b"first")));
        b.start(&a, &first, token(1)).await;
        b.settle(&a, &first, token(1), copied(&b)).await;
        assert_eq!(b.kept(&a, &I).await, Some(Bytes::from_static(b"first")));
        let second = b.publish_kept(&n, &I, "second").await;
        assert_eq!(b.kept(&a, &I).await, Some(Bytes::from_static(b"second")));
        b.handle(&n, &second).await;
        assert_eq!(b.kept(&a, &I).await, None);
        b.publish_kept(&a, &I, "third").await;
        b.publish(&n, &I).await;
        assert_eq!(b.kept(&a, &I).await, None);
        b.publish_kept(&a, &I, "fourth").await;
        b.cancel(&a, None).await;
        assert_eq!(b.kept(&a, &I).await, None);
    }

    async fn a_kept_message_is_not_taken_for_another_events(b) {
        let (a, n) = (event("1", "a"), event("1", "n"));
        b.publish_kept(&a, &I, "first").await;
        // The second event was never recorded.
        let second = CopyVersion { version: b.reserve_due(&n, &I, b.now()).await, ..CopyVersion { slot: I, version: 0, generation: 0 } };
        b.start(&n, &second, token(1)).await;
        b.settle(&n, &second, token(1), copied(&b)).await;
        assert_eq!(b.listed().await, ["n"]);
        assert_eq!(b.kept(&a, &I).await, None);
    }

    async fn the_message_of_a_rescheduled_event_is_kept_until_its_new_time(b) {
        let a = event("1", "a");
        let first = b.publish_kept(&a, &I, "first").await;
        b.postpone(&a, &first, b.after(30 * DAY)).await;
        b.advance(20 * DAY + LEASE);
        assert_eq!(b.kept(&a, &I).await, Some(Bytes::from_static(b"first")));
    }
}

//! The screens of `topology trace`.

use hatchery::LifeCycleRecord;
use serde_json::json;

use super::{
    now::Now,
    screen::{line, screen, without_others},
};
use crate::golden::screens;

/// A failure, a pause, a person, and the dead letter.
fn records() -> Vec<LifeCycleRecord> {
    let of = |at: &str, transition: &str, more: serde_json::Value| {
        let mut record = json!({ "at": at, "transition": transition, "type": "mail" });
        record.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        record
    };
    let event = |at: &str, transition: &str, more: serde_json::Value| {
        let mut record = of(at, transition, more);
        record["id"] = json!(ID);
        record["reference"] = json!("1234");
        record
    };
    let (payroll, seven, eight) = ("payroll @ web-1", "mailer @ worker-7", "mailer @ worker-8");
    let all = [
        // A pause that was over says nothing of this event, and one of another type neither.
        of("2026-06-01T07:00:00Z", "paused", json!({ "of": "type mail", "due": "2026-06-01T08:00:00Z" })),
        of("2026-06-01T08:59:00Z", "paused", json!({ "of": "type pay", "type": "pay" })),
        of(
            "2026-06-01T08:59:59Z",
            "breaker-opened",
            json!({ "of": "type mail", "reason": "100 errors of 120 runs: 451", "by": seven }),
        ),
        event(
            "2026-06-01T09:00:00.100Z",
            "published",
            json!({ "due": "2026-06-01T09:00:00.100Z", "by": payroll, "trace": "4bf92f3577b34da6a3ce929d0e0e4736" }),
        ),
        of(
            "2026-06-01T09:00:00.102Z",
            "breaker-closed",
            json!({ "of": "type mail", "reason": "a person has closed it", "by": "topology breaker @ admin-1" }),
        ),
        event("2026-06-01T09:00:00.112Z", "started", json!({ "attempt": 1, "by": seven })),
        event(
            "2026-06-01T09:00:30.112Z",
            "failed",
            json!({ "attempt": 1, "max_attempts": 2, "then": "retry", "due": "2026-06-01T09:01:30.112Z", "reason": "timed out after 30 s while it waited for smtp.example.com:25", "took": 30_000, "by": seven }),
        ),
        of(
            "2026-06-01T09:01:00Z",
            "paused",
            json!({ "of": "type mail", "due": "2026-06-02T06:00:00Z", "reason": "the provider moves", "by": "topology pause @ admin-1" }),
        ),
        event(
            "2026-06-01T09:02:00Z",
            "rescheduled",
            json!({ "due": "2026-06-02T06:00:00Z", "by": "topology events @ admin-1" }),
        ),
        event("2026-06-02T06:00:00.020Z", "started", json!({ "attempt": 1, "by": eight })),
        event(
            "2026-06-02T06:00:00.032Z",
            "dead-lettered",
            json!({ "attempt": 1, "reason": "no such mailbox", "took": 12, "by": eight }),
        ),
        of("2026-06-03T06:00:00Z", "paused", json!({ "of": "everything" })),
    ];
    all.into_iter().map(|record| serde_json::from_value(record).expect("a record")).collect()
}

const ID: &str = "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11";

fn now() -> Vec<Now> {
    vec![Now {
        event_type: "mail".to_owned(),
        reference: Some("1234".to_owned()),
        id: Some(ID.to_owned()),
        state: "dead-letter".to_owned(),
        due: None,
        place: Some("it should be in billing.dead-letter.mail (1 message), for people".to_owned()),
        commands: vec![format!("topology dead-letter show --type mail {ID}")],
    }]
}

#[test]
fn the_life_of_an_event_fits_80_columns() {
    screens("trace/event", |columns| screen(&without_others(records(), &now()), &now(), columns));
}

#[test]
fn the_records_of_a_type_have_a_line_each() {
    screens("trace/type", |columns| records().iter().map(|record| line(record, columns)).collect());
}

#[test]
fn a_name_or_a_reason_that_acts_on_a_terminal_is_shown_as_text() {
    let mut record = records().swap_remove(6);
    (record.reference, record.reason) = (Some("a\u{1b}[31m".to_owned()), Some("b\u{202e}c".to_owned()));
    let text = line(&record, 80);
    assert!(text.contains("a\u{fffd}[31m") && text.contains("attempt 1 of 2; b\u{fffd}c"), "{text}");
}

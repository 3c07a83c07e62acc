//! The golden screens: `tests/screens/dead-letter.txt`. `UPDATE_GOLDEN=1` writes them anew.

use hatchery::{
    RegisterError,
    bytes::Bytes,
    internals::wire::{Headers, Incoming, Properties, Value},
};
use hatchery_admin::dead_letters::{
    Bounds, DeadLettersError, Due, GroupView, Groups, Letter, LetterQueue, Selection, Standing, Sweep, Swept, Tally,
    Verb, view, whole,
};

use super::{filters::Filters, list, report, show};
use crate::{
    golden::screens,
    output::{Format, Output},
};

const REPLAY: Verb = Verb::Replay(Due::AsBefore);

const LONG: &str = "HTTP 503 from http://mailer:8080/send: the queue of the mail server is full, and its \
                    administrator was told; try again after the weekend";

fn queue(event_type: &str) -> LetterQueue {
    let name = format!("billing.dead-letter.{event_type}");
    LetterQueue { name, event_type: event_type.parse().ok(), source: None, is_leftover: false }
}

fn letter(event_type: &str, id: &str, reference: Option<&str>, failure: &str) -> Letter {
    let last = format!("2026-06-01T09:00:00.000Z {failure}");
    let texts = [("last_failure", last.as_str()), ("first_failure", "2026-05-31T20:15:30.000Z too early")];
    let texts = texts.into_iter().chain(reference.map(|reference| ("reference", reference)));
    let headers = texts.map(|(name, text)| (name.to_owned(), Value::text(text)));
    let properties = Properties {
        content_type: Some("application/json".to_owned()),
        message_id: Some(id.to_owned()),
        headers: headers.chain([("attempts".to_owned(), Value::I64(6))]).collect::<Headers>(),
        ..Properties::default()
    };
    let body = Bytes::from_static(b"{\"to\": \"ann@example.org\",\n \"text\": \"your payslip\"}");
    let message = Incoming { routing_key: format!("{event_type}.dead-letter"), properties, body };
    Letter { known_type: event_type.parse().ok(), source: None, message }
}

/// Letters with short and long names and reasons.
fn some() -> Vec<(Letter, Standing)> {
    let obsolete = Standing::Obsolete("version 4 was replaced by version 7".to_owned());
    let unreadable = Standing::Unreadable("the header `attempts` is a text and not a number".to_owned());
    vec![
        (letter("mail", "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11", Some("ann"), LONG), Standing::Open),
        (letter("hr-import", "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b12", Some("従業員-1"), "KeyError: salary"), obsolete),
        (letter("hr-import", "7", None, "KeyError: salary\u{1b}[2J"), unreadable),
    ]
}

fn groups() -> Vec<GroupView> {
    let mut groups = Groups::default();
    for (letter, standing) in some().iter().chain(&some()) {
        groups.add(letter, standing);
    }
    for _ in 0..1_200 {
        groups.add(&letter("mail", "7", None, "timeout: no answer within 30s"), &Standing::Open);
    }
    groups.largest_first()
}

#[test]
fn a_list_is_as_it_was_drawn() {
    screens("dead-letter/list", |columns| list::screen(&groups(), &[], 1_206, 2, columns));
    screens("dead-letter/list-events", |columns| {
        let events: Vec<_> =
            some().iter().map(|(letter, standing)| view(letter, standing, &queue(&letter.event_type()))).collect();
        list::screen(&[], &events, 1_206, 1, columns)
    });
    screens("dead-letter/list-empty", |columns| list::screen(&[], &[], 0, 0, columns));
}

#[test]
fn a_letter_is_as_it_was_drawn() {
    let (letter, standing) = &some()[1];
    let shown = whole(letter, standing, &queue("hr-import"), 4_096);
    screens("dead-letter/show", |columns| show::text(&shown, columns));
    let (long, standing) = &mut some()[0];
    let shown = |letter: &Letter, limit, columns| show::text(&whole(letter, standing, &queue("mail"), limit), columns);
    screens("dead-letter/show-cut", |columns| shown(long, 30, columns));
    let lines = ["{", "    \"text\": \"", &LONG.repeat(2), "\",", "    \"key\": \"", &"0123456789".repeat(20), "\"\n}"];
    let payload = lines.concat().replacen("{    ", "{\n    ", 1).replace(",    ", ",\n    ");
    long.message.body = Bytes::from(payload.clone());
    screens("dead-letter/show-long", |columns| shown(long, 4_096, columns));
    let piped = shown(long, 4_096, usize::MAX);
    assert!(payload.lines().all(|line| piped.lines().any(|shown| shown == format!("  {line}"))), "{piped}");
    long.message.body = Bytes::from(vec![0xff; 200]);
    screens("dead-letter/show-bytes", |columns| shown(long, 4_096, columns));
}

#[test]
fn a_dry_run_is_as_it_was_drawn() {
    let tally = Tally { ready: 1_206, done: 1_203, obsolete: 2, unreadable: 1, others: 0, unread: 0 };
    screens("dead-letter/replay-dry-run", |columns| report::dry_run_text(&groups(), tally, REPLAY, "", columns));
    let tally = Tally { ready: 1_206, done: 1, ..Tally::default() };
    screens("dead-letter/discard-dry-run", |columns| {
        report::dry_run_text(&groups()[2..], tally, Verb::Discard, "", columns)
    });
}

#[test]
fn a_report_is_as_it_was_drawn() {
    let tally = Tally { ready: 1_206, done: 1_203, obsolete: 2, unreadable: 1, others: 0, unread: 0 };
    screens("dead-letter/replay", |columns| report::text(tally, REPLAY, "", columns));
    screens("dead-letter/replay-unrouted", |columns| report::text(tally, REPLAY, " --unrouted", columns));
    screens("dead-letter/discard", |columns| {
        report::text(Tally { done: 1, ..Tally::default() }, Verb::Discard, "", columns)
    });
}

/// The letters under way were published, and Redis could not be told.
#[tokio::test]
async fn a_replay_that_redis_cuts_off_does_not_say_that_it_has_counted_all() {
    let redis = RegisterError::Refused { url: "redis://localhost".into(), reason: "it is full".into() };
    let error = std::sync::Mutex::new(Some(DeadLettersError::Register(redis)));
    let act = async |_: Sweep<'_>| {
        let tally = Tally { ready: 100, done: 64, ..Tally::default() };
        Swept { tally, consumers: 0, interrupted: false, error: error.lock().expect("no panic").take() }
    };
    let (queues, output) = ([queue("mail")], Output::new(Format::Json, true, false));
    let (selection, bounds) = (Selection::default(), Bounds::default());
    let swept = report::sweep(&queues, &Filters::default(), REPLAY, output, (&selection, bounds), act).await;
    let said = swept.expect_err("it was cut off").to_string();
    assert!(said.ends_with("; at least 64 letters replayed before. Run it again for the rest"), "{said}");
}

//! The golden screens: `tests/screens/status.txt`. `UPDATE_GOLDEN=1` writes them anew.

mod shown;

use hatchery_admin::{
    Found, Name, Pause, PauseLine, Paused, PausedBy, Status, TypeLine, Unlisted, Verdict,
    status::{Finding, Letters, Queue},
};

use self::shown::one_of_each;
use super::screen::{Room, screen};
use crate::golden;

/// A topology without events.
fn well() -> Status {
    let line = |name: &str, delayed| {
        let mut line = TypeLine::default();
        line.name = name.to_owned();
        (line.due, line.delayed, line.retrying, line.dead) = (Some(0), delayed, Some(0), Some(0));
        line.late_seconds = delayed;
        (line.in_rate, line.out_rate, line.workers) = (Some(0.0), Some(0.0), Some(0));
        line
    };
    let mut status = Status::default();
    status.topology = "billing".to_owned();
    status.broker = Some("4.3.6".to_owned());
    status.at = "2026-06-01T09:00:00Z".parse().expect("a time");
    status.types = vec![line("hr-import", Some(0)), line("log", None), line("mail", Some(0))];
    status.leftovers = Some(0);
    status
}

/// A topology with events everywhere.
fn busy() -> Status {
    let mut status = well();
    let import = &mut status.types[0];
    (import.due, import.delayed, import.retrying, import.dead) = (Some(1_500), Some(1_249_970), Some(30), Some(9_000));
    (import.in_rate, import.out_rate, import.workers) = (Some(121.6), Some(118.2), Some(4));
    import.late_seconds = Some(3_600 * 47);
    import.next_due = Some("2026-06-01T09:04:10Z".parse().expect("a time"));
    status.unlisted = vec![Unlisted { place: "billing.unrouted".to_owned(), messages: 500 }];
    let unrouted = Queue { queue: "billing.unrouted".to_owned(), messages: 500 };
    let queue = "billing.dead-letter.hr-import".to_owned();
    let letters =
        Letters { queue, messages: 9_000, not_open: None, more: None, within_seconds: None, left_file: false };
    let findings = [Finding::Unrouted { queue: unrouted }, Finding::DeadLetters { queues: vec![letters] }];
    status.findings = findings.map(Found::from).to_vec();
    status.verdict = Verdict::Stuck;
    status
}

fn broken() -> Status {
    let mut status = busy();
    status.findings = one_of_each().into_iter().map(Found::from).collect();
    status.leftovers = Some(3);
    status
}

/// The status as AMQP alone tells it, without Redis.
fn by_amqp() -> Status {
    let mut status = busy();
    status.broker = None;
    status.leftovers = None;
    status.types[0].due = Some(1_300);
    for line in &mut status.types {
        (line.delayed, line.next_due, line.in_rate, line.out_rate) = (None, None, None, None);
        line.late_seconds = None;
        line.workers = Some(1);
    }
    let why = "the management API at http://rabbit:15672 is unreachable: Connection refused (os error 111)".to_owned();
    status.findings.insert(1, Finding::ManagementAway { why }.into());
    status.unknown =
        vec!["delayed events, how late events are, and whether runs fail: set --redis-url (REDIS_URL)".to_owned()];
    status
}

/// A terminal with fewer rows than types.
fn many_types() -> Status {
    let mut status = busy();
    let line = status.types[0].clone();
    for n in 0..1_000 {
        let mut line = line.clone();
        line.name = format!("a-type-with-a-rather-long-name-{n:04}");
        line.due = Some(n);
        status.types.push(line);
    }
    status
}

/// A paused type whose events wait.
fn paused() -> Status {
    let mut status = well();
    let mail = &mut status.types[2];
    (mail.due, mail.late_seconds, mail.paused) = (Some(1_500), Some(7_200), Some(true));
    let pause = |of, by, until: Option<&str>, reason: &str| {
        let until = until.map(|until| until.parse().expect("a time"));
        let since = "2026-06-01T07:00:00Z".parse().expect("a time");
        PauseLine::from(&Pause { of, by, reason: reason.to_owned(), since, until })
    };
    let name = |text: &str| Name(text.parse().expect("a word"));
    status.pauses = vec![
        pause(Paused::Type(name("mail")), PausedBy::Person, Some("2026-06-01T12:00:00Z"), "the provider migrates"),
        pause(Paused::Source(name("hr")), PausedBy::File, None, ""),
    ];
    status
}

#[test]
fn the_screens_are_as_they_were_drawn() {
    let cases: [(&str, Status, &[usize], _); 5] = [
        ("paused", paused(), &[80], None),
        ("broken", broken(), &[80, 140], None),
        ("well", well(), &[80], Some(24)),
        ("by-amqp", by_amqp(), &[80], None),
        ("many-types", many_types(), &[80], Some(24)),
    ];
    for (name, status, widths, rows) in cases {
        golden::screens_of(&format!("status/{name}"), widths, |columns| screen(&status, Room { columns, rows }, false));
    }
}

#[test]
fn a_screen_fits_the_rows_of_a_terminal() {
    let lines = screen(&many_types(), Room { columns: 80, rows: Some(24) }, false).lines().count();
    assert!(lines < 24, "{lines} lines");
    let all = screen(&many_types(), Room { columns: 80, rows: Some(24) }, true).lines().count();
    assert!(all > 1_000, "{all} lines with -v");
}

#[test]
fn a_pipe_cuts_no_name() {
    let text = screen(&many_types(), Room { columns: usize::MAX, rows: None }, false);
    assert!(text.contains("a-type-with-a-rather-long-name-0999"));
}

#[test]
fn the_verdict_is_no_further_than_what_is_known() {
    let shown = |status: &Status| screen(status, Room { columns: usize::MAX, rows: None }, false);
    let mut status = well();
    assert!(!shown(&status).contains("as far as is known"));
    status.unknown = vec!["rates".to_owned()];
    let screen = shown(&status);
    assert!(screen.contains("nothing is wrong as far as is known") && screen.contains("Not known: rates."), "{screen}");
}

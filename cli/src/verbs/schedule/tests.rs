//! The golden screens: `tests/screens/schedule.txt`. `UPDATE_GOLDEN=1` writes them anew.

use hatchery_admin::schedules::{LastRun, ScheduleView};
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

use super::{list, show};
use crate::golden::screens;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn now() -> Timestamp {
    at("2026-05-30T10:04:00Z")
}

fn ran(id: &str, started: &str, ended: Option<(&str, &str)>) -> LastRun {
    LastRun {
        id: id.to_owned(),
        started: Some(at(started)),
        ended: ended.map(|(ended, _)| at(ended)),
        outcome: ended.map(|(_, outcome)| outcome.to_owned()),
    }
}

/// Returns the schedules of a file without the last one, which has left it.
fn some() -> Vec<ScheduleView> {
    let nightly = ScheduleView {
        name: "nightly-import".to_owned(),
        state: "armed".into(),
        event_type: Some("hr-import".to_owned()),
        reference: Some("all".to_owned()),
        calendar: Some("0 3 * * 1-5 Europe/Berlin".to_owned()),
        timezone: Some("Europe/Berlin".to_owned()),
        mode: Some("fixed".into()),
        jitter: Some("0s".to_owned()),
        overlap: Some("queue".to_owned()),
        catch_up: Some("last".to_owned()),
        on_failure: Some("continue".to_owned()),
        next: ["2026-06-01T01:00:00Z", "2026-06-02T01:00:00Z", "2026-06-03T01:00:00Z"].map(at).to_vec(),
        last: Some(ran(
            "nightly-import@2026-05-29T01:00:00Z",
            "2026-05-29T01:00:00.120Z",
            Some(("2026-05-29T01:12:07Z", "done")),
        )),
        paused_since: None,
        paused_because: None,
    };
    let interval = ScheduleView {
        reference: None,
        calendar: Some("every 5m".to_owned()),
        timezone: Some("UTC".to_owned()),
        mode: Some("sequential".into()),
        ..nightly.clone()
    };
    let running = ScheduleView {
        name: "poll-bank".to_owned(),
        next: vec![at("2026-05-30T10:05:03.214Z")],
        last: Some(ran("poll-bank#1780135503214", "2026-05-30T10:03:10Z", None)),
        ..interval.clone()
    };
    let failed = "dead-letter: HTTP 503 from https://bank.example.org/api/v2/statements: the service is closed for maintenance until Monday";
    let paused = ScheduleView {
        name: "reminders-of-overdue-invoices".to_owned(),
        state: "paused".into(),
        next: Vec::new(),
        last: Some(ran(
            "reminders-of-overdue-invoices#17",
            "2026-05-30T07:00:00Z",
            Some(("2026-05-30T07:00:01Z", failed)),
        )),
        paused_since: Some(at("2026-05-30T07:00:01Z")),
        paused_because: Some(failed.to_owned()),
        ..interval.clone()
    };
    let new = ScheduleView {
        name: "yearly".to_owned(),
        state: "not applied".into(),
        next: Vec::new(),
        last: None,
        ..interval
    };
    let removed = ScheduleView {
        name: "old".to_owned(),
        state: "not in the file".into(),
        event_type: None,
        reference: None,
        calendar: None,
        timezone: None,
        mode: None,
        jitter: None,
        overlap: None,
        catch_up: None,
        on_failure: None,
        next: Vec::new(),
        last: None,
        paused_since: None,
        paused_because: None,
    };
    vec![nightly, running, paused, new, removed]
}

#[test]
fn a_list_is_as_it_was_drawn() {
    screens("schedule/list", |columns| list::screen(&some(), now(), columns));
    screens("schedule/list-armed", |columns| list::screen(&some()[..1], now(), columns));
    screens("schedule/list-empty", |columns| list::screen(&[], now(), columns));
}

#[test]
fn a_schedule_is_as_it_was_drawn() {
    screens("schedule/show", |columns| {
        let blocks: Vec<String> = some().iter().map(|view| show::screen(view, columns)).collect();
        blocks.join("\n")
    });
}

#[test]
fn a_list_fits_whatever_is_in_it_and_a_pipe_gets_all_of_it() {
    let long = "x".repeat(64);
    let views: Vec<ScheduleView> = some().into_iter().map(|view| ScheduleView { name: long.clone(), ..view }).collect();
    for columns in [60, 80, 120] {
        let screen = anstream::adapter::strip_str(&list::screen(&views, now(), columns)).to_string();
        assert!(screen.lines().all(|line| line.width() <= columns), "{columns}:\n{screen}");
    }
    let piped = anstream::adapter::strip_str(&list::screen(&views, now(), usize::MAX)).to_string();
    assert_eq!(piped.matches(&long).count(), views.len());
    assert!(piped.contains("maintenance until Monday") && !piped.contains('…'), "{piped}");
}

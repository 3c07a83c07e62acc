//! Shows events as a table that fits the terminal, and times relative to now.

use anstyle::Style;
use hatchery::State;
use hatchery_admin::{event_view::EventView, text::relative};
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

use crate::{
    output::{CYAN, RED, YELLOW},
    table::{self, paint},
    text::{LEAST, cut},
};

/// The largest width of the type column. There are few types, and people know them by their first letters.
const TYPE: usize = 12;
/// From this width on there is room for longer types.
const WIDE: usize = 120;
/// The least width of the reason column.
const REASON: usize = 8;
/// The width at which a reason can be read. A reference that is longer than an id leaves this to the reasons.
const READABLE: usize = 30;
/// The width of an id, which is shown in place of a missing reference.
const ID: usize = 36;

/// A column: its head, its width, and the text of a row.
type Column = (&'static str, usize, fn(&Row) -> &str);

/// Returns the table, at most `width` characters wide; with [`usize::MAX`] nothing is cut. If asked for, events of schedules are
/// marked. `Output::print` removes the colours for a pipe.
pub(super) fn table(events: &[EventView], marks_schedules: bool, now: Timestamp, width: usize) -> String {
    let rows: Vec<Row> = events.iter().map(|event| Row::of(event, marks_schedules, now)).collect();
    let columns = columns(&rows, width.max(LEAST));
    let heads: Vec<&str> = columns.iter().map(|(head, ..)| *head).collect();
    let cells = |row: &Row| -> Vec<String> {
        let cell = |(head, width, cell): &Column| {
            let text = cut(cell(row), *width);
            if *head == "STATE" { paint(style(&row.state), &text) } else { text }
        };
        columns.iter().map(cell).collect()
    };
    table::table(&heads, rows.iter().map(cells), 0..0) + "\n"
}

/// Returns the columns that fit. People copy the id and read the reason, so the date is left out first: the column DUE
/// holds the same time relative to now.
fn columns(rows: &[Row], width: usize) -> Vec<Column> {
    let column = |head: &'static str, cell: fn(&Row) -> &str| -> Column {
        let widths = rows.iter().map(|row| cell(row).width());
        (head, widths.chain([head.len()]).max().unwrap_or(0), cell)
    };
    let many_types = rows.iter().any(|row| row.event_type != rows[0].event_type);
    let (head, widest, cell) = column("TYPE", |row| &row.event_type);
    let most = match width {
        usize::MAX => width,
        WIDE.. => 2 * TYPE,
        _ => TYPE,
    };
    let event_type = many_types.then_some((head, widest.min(most), cell));
    let (head, widest, cell) = column("REFERENCE", |row| &row.name);
    let reference = |room: usize| (head, widest.min(room), cell);
    let state = column("STATE", |row| &row.state);
    let due = column("DUE", |row| &row.relative);
    let date = column("", |row| &row.absolute);
    let tries = column("TRIES", |row| &row.attempts);
    let reasons = rows.iter().any(|row| !row.reason.is_empty());

    let room = |columns: &[Column]| width.saturating_sub(columns.iter().map(|(_, width, _)| width + 2).sum());
    let others = |date: Option<Column>| -> Vec<Column> {
        event_type.into_iter().chain([state, due]).chain(date).chain([tries]).collect()
    };
    let all = others(Some(date));
    let needed = widest + if reasons { 2 + REASON } else { 0 };
    let mut columns = if needed <= room(&all) { all } else { others(None) };
    let (_, reason, _) = column("REASON", |row| &row.reason);
    let for_reason = if reasons { 2 + reason.min(READABLE) } else { 0 };
    let free = room(&columns);
    let reference = reference(free.saturating_sub(for_reason).max(ID).min(free));
    columns.insert(usize::from(many_types), reference);
    let room = room(&columns);
    if reasons && room >= REASON {
        let (head, widest, cell) = column("REASON", |row| &row.reason);
        columns.push((head, widest.min(room), cell));
    }
    columns
}

struct Row {
    event_type: String,
    name: String,
    state: String,
    relative: String,
    absolute: String,
    attempts: String,
    reason: String,
}

impl Row {
    fn of(event: &EventView, marks_schedules: bool, now: Timestamp) -> Self {
        let schedule = event.schedule.as_ref().filter(|_| marks_schedules);
        let schedule = schedule.map(|schedule| format!("schedule {}", schedule.name));
        let due: Option<Timestamp> = event.due.as_ref().and_then(|due| due.parse().ok());
        // Its id has the instant, which the due time tells too.
        let by_schedule = schedule.clone().filter(|_| event.reference.is_none());
        let schedule = schedule.filter(|_| by_schedule.is_none());
        Self {
            event_type: event.event_type.clone(),
            name: by_schedule.unwrap_or_else(|| name(event)),
            state: event.state.as_deref().unwrap_or_default().to_owned(),
            relative: due.map(|due| relative(now, due, 1)).unwrap_or_default(),
            absolute: due.map(|due| due.strftime("%Y-%m-%d %H:%MZ").to_string()).unwrap_or_default(),
            attempts: event.attempts.unwrap_or_default().to_string(),
            reason: event.error.clone().or(schedule).unwrap_or_default(),
        }
    }
}

/// Returns the event's reference, or its id if it has no reference.
fn name(event: &EventView) -> String {
    event.reference.clone().or_else(|| event.id.clone()).unwrap_or_else(|| "-".to_owned())
}

/// Returns the colour of a state.
pub(super) fn style(state: &str) -> Style {
    match state.parse() {
        Ok(State::Running) => CYAN,
        Ok(State::Retry) => YELLOW,
        Ok(State::DeadLetter) => RED,
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use hatchery::{EventInfo, internals::register::Stage};

    use super::*;
    use crate::verbs::events::tests::{event, views};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn a_table_fits_whatever_is_in_it() {
        let long = "x".repeat(255);
        let events = [
            event("mail", Some("1234"), Stage::Waiting, None),
            event("mail", None, Stage::Retry, Some(&long)),
            event("a-type-with-a-long-name", Some(&long), Stage::DeadLetter, Some(&long)),
        ];
        for width in [60, 80, 120] {
            for shown in [&events[..1], &events[..2], &events[1..2], &events[..]] {
                let text = table(&views(shown), false, at(1_000_000_000), width);
                let plain = anstream::adapter::strip_str(&text).to_string();
                assert!(plain.lines().all(|line| line.width() <= width), "{plain}");
            }
        }
        let shown = |events: &[EventInfo], width| {
            anstream::adapter::strip_str(&table(&views(events), false, at(1_000_000_000), width)).to_string()
        };
        let narrow = "\
REFERENCE                             STATE    DUE    TRIES  REASON
1234                                  waiting  in 1h  3
0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11  retry    in 1h  3      xxxxxxxxxxxxxxxxxx…
";
        assert_eq!(shown(&events[..2], 80), narrow);
        let wide = "\
REFERENCE  STATE    DUE                       TRIES
従業員     waiting  in 1h  2001-09-09 02:48Z  3
1234       waiting  in 1h  2001-09-09 02:48Z  3
";
        let events =
            [event("mail", Some("従業員"), Stage::Waiting, None), event("mail", Some("1234"), Stage::Waiting, None)];
        assert_eq!(shown(&events, 80), wide);
    }

    #[test]
    fn a_table_of_unlimited_width_cuts_nothing() {
        let long = "x".repeat(255);
        let events = [
            event("mail", None, Stage::Waiting, None),
            event("a-type-with-a-long-name", Some(&long), Stage::DeadLetter, Some(&long)),
        ];
        let text =
            anstream::adapter::strip_str(&table(&views(&events), false, at(1_000_000_000), usize::MAX)).to_string();
        let row = text.lines().last().expect("a row");
        assert_eq!((row.matches(&long).count(), row.contains("a-type-with-a-long-name")), (2, true), "{text}");
    }
}

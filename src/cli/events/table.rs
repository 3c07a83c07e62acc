//! Events as a table of at most 80 columns, and times as people say them.

use std::fmt::Write as _;

use anstyle::Style;
use hatchery::{Known, State};
use jiff::Timestamp;

use super::super::output::{CYAN, DIM, RED, YELLOW};

/// The whole width.
const WIDTH: usize = 80;
/// A reason that has less room than this is not shown.
const REASON: usize = 8;

/// A column: its head, its width, and what stands in it.
type Column = (&'static str, usize, fn(&Row) -> &str);

/// The table. Colours are taken out again for a pipe.
pub(super) fn table(events: &[Known], now: Timestamp) -> String {
    let rows: Vec<Row> = events.iter().map(|event| Row::of(event, now)).collect();
    let column = |head: &'static str, cell: fn(&Row) -> &str| -> Column {
        let widths = rows.iter().map(|row| cell(row).chars().count());
        (head, widths.chain([head.len()]).max().unwrap_or(0), cell)
    };
    let mut columns: Vec<Column> = vec![
        column("STATE", |row| row.state.as_str()),
        column("DUE", |row| &row.relative),
        column("", |row| &row.absolute),
        column("TRIES", |row| &row.attempts),
    ];
    if rows.iter().any(|row| row.event_type != rows[0].event_type) {
        let (head, width, cell) = column("TYPE", |row| &row.event_type);
        columns.insert(0, (head, width.min(12), cell));
    }
    let room = |columns: &[Column]| WIDTH.saturating_sub(columns.iter().map(|(_, width, _)| width + 2).sum());
    let (head, width, cell) = column("REFERENCE", |row| &row.name);
    let place = columns.len() - 4;
    columns.insert(place, (head, width.min(room(&columns)), cell));
    let room = room(&columns);
    if room >= REASON && rows.iter().any(|row| !row.reason.is_empty()) {
        columns.push(("REASON", room, |row| &row.reason));
    }
    let mut text = String::new();
    let head: Vec<(String, Style)> = columns.iter().map(|(head, width, _)| (format!("{head:<width$}"), DIM)).collect();
    line(&mut text, &head);
    for row in &rows {
        let cells: Vec<(String, Style)> = columns
            .iter()
            .map(|(head, width, cell)| {
                let style = if *head == "STATE" { style(row.state) } else { Style::new() };
                (format!("{:<width$}", cut(cell(row), *width)), style)
            })
            .collect();
        line(&mut text, &cells);
    }
    text
}

struct Row {
    event_type: String,
    name: String,
    state: State,
    relative: String,
    absolute: String,
    attempts: String,
    reason: String,
}

impl Row {
    fn of(event: &Known, now: Timestamp) -> Self {
        Self {
            event_type: event.event_type.to_string(),
            name: name(event),
            state: event.state,
            relative: event.due.map(|due| relative(now, due, 1)).unwrap_or_default(),
            absolute: event.due.map(|due| due.strftime("%Y-%m-%d %H:%MZ").to_string()).unwrap_or_default(),
            attempts: event.attempts.to_string(),
            reason: event.reason.clone().unwrap_or_default(),
        }
    }
}

/// Its reference; without one, its id.
pub(super) fn name(event: &Known) -> String {
    let reference = event.reference.as_ref().map(ToString::to_string);
    reference.or_else(|| event.id.clone()).unwrap_or_else(|| "-".to_owned())
}

/// How its state is coloured.
pub(super) const fn style(state: State) -> Style {
    match state {
        State::Running => CYAN,
        State::Retry => YELLOW,
        State::DeadLetter => RED,
        _ => Style::new(),
    }
}

fn line(text: &mut String, cells: &[(String, Style)]) {
    for (place, (cell, style)) in cells.iter().enumerate() {
        let last = place + 1 == cells.len();
        let cell = if last { cell.trim_end() } else { cell };
        let gap = if last { "" } else { "  " };
        let _ = write!(text, "{style}{cell}{style:#}{gap}");
    }
    text.push('\n');
}

/// A text that is no longer than this. Where it was longer an ellipsis says so.
pub(super) fn cut(text: &str, width: usize) -> String {
    // It goes to a terminal, where an escape sequence would act.
    let mut characters = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut kept: String = characters.by_ref().take(width).collect();
    if characters.next().is_some() {
        kept.pop();
        kept.push('…');
    }
    kept
}

/// When that is, seen from now: so many of the largest units.
pub(super) fn relative(now: Timestamp, time: Timestamp, units: usize) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let away = time.duration_since(now);
    let mut left = away.unsigned_abs().as_secs();
    let said = UNITS.iter().map(|(unit, name)| {
        let count = left / unit;
        left %= unit;
        (count, name)
    });
    let said = said.skip_while(|(count, _)| *count == 0).take(units).filter(|(count, _)| *count > 0);
    let said = said.map(|(count, name)| format!("{count}{name}")).collect::<Vec<_>>().join(" ");
    match (said.is_empty(), away.is_negative()) {
        (true, _) => "now".to_owned(),
        (false, true) => format!("{said} ago"),
        (false, false) => format!("in {said}"),
    }
}

/// 1 event, 2 events.
pub(super) fn events(count: u64) -> String {
    format!("{count} event{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use hatchery::domain::register::{
        Note, Stage, Subject,
        index::{Entry, Shown},
        state::SlotState,
    };
    use rstest::rstest;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[rstest]
    #[case(0, 2, "now")]
    #[case(5, 1, "in 5s")]
    #[case(60, 2, "in 1m")]
    #[case(3_725, 2, "in 1h 2m")]
    #[case(3_725, 1, "in 1h")]
    #[case(-90, 2, "1m 30s ago")]
    #[case(86_400 * 400 + 60, 2, "in 400d")]
    fn a_time_is_said_from_now(#[case] seconds: i64, #[case] units: usize, #[case] expected: &str) {
        assert_eq!(relative(at(1_000_000_000), at(1_000_000_000 + seconds), units), expected);
    }

    #[rstest]
    #[case("short", 5, "short")]
    #[case("longer", 5, "long…")]
    #[case("größer", 5, "größ…")]
    #[case("a\u{1b}[31m", 9, "a [31m")]
    fn a_cell_is_cut(#[case] text: &str, #[case] width: usize, #[case] expected: &str) {
        assert_eq!(cut(text, width), expected);
    }

    fn event(event_type: &str, reference: Option<&str>, stage: Stage, reason: Option<&str>) -> Known {
        let id = "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11".to_owned();
        let subject = Subject {
            event_type: event_type.parse().expect("a word"),
            reference: reference.map(|text| text.parse().expect("a reference")),
            id: id.clone(),
        };
        let slot = hatchery::domain::register::Slot::Event(id);
        let note = Note { stage, attempts: 3, reason: reason.map(str::to_owned) };
        let entry = Some(Entry { subject: subject.clone(), slot: slot.clone(), due: at(1_000_003_725), note });
        Known::of(&subject, Shown { slot, state: SlotState::default(), leased: false, entry })
    }

    #[test]
    fn a_table_has_80_columns_whatever_is_in_it() {
        let long = "x".repeat(255);
        let events = [
            event("mail", Some("1234"), Stage::Waiting, None),
            event("mail", None, Stage::Retry, Some(&long)),
            event("a-type-with-a-long-name", Some(&long), Stage::DeadLetter, Some(&long)),
        ];
        for shown in [&events[..1], &events[..2], &events[1..2], &events[..]] {
            let text = table(shown, at(1_000_000_000));
            let plain = anstream::adapter::strip_str(&text).to_string();
            assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
        }
        let text = table(&events[..2], at(1_000_000_000));
        let expected = "\
REFERENCE                             STATE    DUE                       TRIES
1234                                  waiting  in 1h  2001-09-09 02:48Z  3
0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11  retry    in 1h  2001-09-09 02:48Z  3
";
        assert_eq!(anstream::adapter::strip_str(&text).to_string(), expected);
    }
}

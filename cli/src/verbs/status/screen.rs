//! Draws the answer of `status` as one screen.

use std::time::Duration;

use hatchery_admin::{
    Found, Severity, SourceLine, Status, TypeLine, Unlisted, Verdict,
    text::{count, relative},
};
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

use crate::{
    output::{CYAN, DIM, GREEN, RED, YELLOW},
    table::{GAP, paint, table, widest},
    text::{LEAST, cut, folded},
};

/// From this width on there is room for whole numbers and dates.
const WIDE: usize = 100;
/// The width at which sentences end, however wide the terminal is: longer lines are hard to read.
const LONGEST_LINE: usize = 120;
/// The width of a pipe, in which nothing is folded or cut.
const ENDLESS: usize = usize::MAX;

/// The room for the screen: columns, and rows if it is a terminal.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) columns: usize,
    pub(super) rows: Option<usize>,
}

/// Returns the screen. With `verbose` it has a line for every type, even if the terminal has fewer rows.
pub(super) fn screen(status: &Status, room: Room, verbose: bool) -> String {
    let width = room.columns.max(LEAST);
    let readable = if width == ENDLESS { ENDLESS } else { width.min(LONGEST_LINE) };
    let mut top = vec![head(status), String::new()];
    for found in &status.findings {
        top.extend(finding(found, readable));
    }
    if !status.findings.is_empty() {
        top.push(String::new());
    }
    let bottom = notes(status, readable);
    let sources = if status.sources.is_empty() { Vec::new() } else { source_table(&status.sources, width) };
    let others = top.len() + bottom.len() + sources.len() + 3;
    let free = room.rows.filter(|_| !verbose).map(|rows| rows.saturating_sub(others).max(3));
    let (types, hidden) = shown(&status.types, free);
    let mut lines = top;
    lines.extend(type_table(&types, status.at, width).lines().map(str::to_owned));
    if hidden > 0 {
        lines.push(format!("{DIM}… and {hidden} more types, which have less to do (-v shows all){DIM:#}"));
    }
    lines.extend(sources);
    lines.extend(bottom);
    lines.join("\n") + "\n"
}

fn head(status: &Status) -> String {
    let broker = status.broker.as_ref().map(|version| format!("RabbitMQ {version}, ")).unwrap_or_default();
    let at = status.at.strftime("%Y-%m-%d %H:%M:%SZ");
    let (style, verdict) = match status.verdict {
        Verdict::Well if status.unknown.is_empty() => (GREEN, "nothing is wrong"),
        Verdict::Well => (GREEN, "nothing is wrong as far as is known"),
        Verdict::Look => (YELLOW, "look at this"),
        Verdict::Stuck => (RED, "events are stuck"),
    };
    format!("{} on {broker}{at}: {style}{verdict}{style:#}", status.topology)
}

fn finding(found: &Found, width: usize) -> Vec<String> {
    let (style, sign) = match found.severity {
        Severity::Stuck => (RED, '!'),
        Severity::Look => (YELLOW, '*'),
    };
    let mut lines: Vec<String> = folded(&found.message, width - 2);
    if let Some((first, others)) = lines.split_first_mut() {
        *first = format!("{style}{sign}{style:#} {first}");
        for line in others {
            *line = format!("  {line}");
        }
    }
    let command = continued(&found.command, width - 4);
    let (runbook, last) = (&found.runbook, command.last().map_or(0, |line| line.width()));
    let ends = command.len() - 1;
    for (n, line) in command.iter().enumerate() {
        let prompt = if n == 0 { "  $ " } else { "    " };
        let runbook = if n == ends && 4 + last + 2 + runbook.width() <= width {
            format!("  {DIM}{runbook}{DIM:#}")
        } else {
            String::new()
        };
        lines.push(format!("{prompt}{CYAN}{line}{CYAN:#}{runbook}"));
    }
    if 4 + last + 2 + runbook.width() > width {
        lines.push(format!("    {DIM}{runbook}{DIM:#}"));
    }
    lines
}

/// Returns the lines below the table.
fn notes(status: &Status, width: usize) -> Vec<String> {
    let mut notes: Vec<String> =
        status.pauses.iter().map(|pause| format!("Paused: {} {}", pause.what(), pause.about())).collect();
    // RabbitMQ's counts are some seconds old, and those of the register are not.
    if let Some(unlisted) = unlisted_words(&status.unlisted, "about") {
        notes.push(unlisted);
    }
    match status.leftovers {
        Some(0) | None => {}
        Some(1) => notes.push("1 leftover object: `topology plan` shows it.".to_owned()),
        Some(many) => notes.push(format!("{many} leftover objects: `topology plan` shows them.")),
    }
    notes.extend(status.unknown.iter().map(|unknown| format!("Not known: {unknown}.")));
    let lines: Vec<String> = notes.iter().flat_map(|note| folded(note, width)).collect();
    let blank = (!lines.is_empty()).then(String::new);
    blank.into_iter().chain(lines).collect()
}

/// Returns a sentence about the messages that no list of events has. `how` is *about* or *at least*, by how old RabbitMQ's
/// counts are.
pub(crate) fn unlisted_words(unlisted: &[Unlisted], how: &str) -> Option<String> {
    const SHOWN: usize = 4;
    if unlisted.is_empty() {
        return None;
    }
    let mut fullest: Vec<&Unlisted> = unlisted.iter().collect();
    fullest.sort_by_key(|place| std::cmp::Reverse(place.messages));
    let all: u64 = unlisted.iter().map(|place| place.messages).sum();
    let places: Vec<String> =
        fullest.iter().take(SHOWN).map(|place| format!("{} {}", place.place, place.messages)).collect();
    let more = match fullest.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more places"),
    };
    let all = count(all, "message");
    Some(format!("Not in `topology events list`: {how} {all} ({}{more}).", places.join(", ")))
}

/// Returns the types for which there is room, and how many others there are. If not all fit, those with the most events
/// are shown.
fn shown(types: &[TypeLine], free: Option<usize>) -> (Vec<&TypeLine>, usize) {
    let mut shown: Vec<&TypeLine> = types.iter().collect();
    let Some(free) = free.filter(|free| *free < types.len()) else { return (shown, 0) };
    let events = |line: &TypeLine| -> u64 {
        [line.dead, line.due, line.retrying, line.delayed].into_iter().flatten().fold(0, u64::saturating_add)
    };
    shown.sort_by_key(|line| std::cmp::Reverse(events(line)));
    shown.truncate(free - 1);
    shown.sort_by(|one, other| one.name.cmp(&other.name));
    let hidden = types.len() - shown.len();
    (shown, hidden)
}

fn type_table(types: &[&TypeLine], now: Timestamp, width: usize) -> String {
    let is_wide = width >= WIDE;
    let number = |number: Option<u64>| number.map_or_else(unknown, |number| shortened(number, is_wide));
    let mut rows: Vec<[String; 10]> = types
        .iter()
        .map(|line| {
            [
                marked(&line.name, line.paused),
                number(line.due),
                line.late_seconds.map_or_else(unknown, late),
                number(line.delayed),
                line.next_due.map_or_else(unknown, |due| next(now, due, is_wide)),
                number(line.retrying),
                number(line.dead),
                line.in_rate.map_or_else(unknown, rate),
                line.out_rate.map_or_else(unknown, rate),
                number(line.workers),
            ]
        })
        .collect();
    let heads = ["TYPE", "DUE", "LATE", "DELAYED", "NEXT", "RETRYING", "DEAD", "IN/S", "OUT/S", "WORKERS"];
    let others: usize = (1..heads.len()).map(|column| widest(&heads, &rows, column) + usize::from(GAP)).sum();
    let name = if width == ENDLESS { ENDLESS } else { width.saturating_sub(others).max(heads[0].len()) };
    for row in &mut rows {
        (row[0], row[6]) = (cut(&row[0], name), dead(&row[6]));
    }
    table(&heads, rows, 1..heads.len())
}

/// Returns a blank line and the table of the sources.
fn source_table(sources: &[SourceLine], width: usize) -> Vec<String> {
    let number = |number: Option<u64>| number.map_or_else(unknown, |number| shortened(number, width >= WIDE));
    let row = |line: &SourceLine| {
        let (name, queue) = (cut(&marked(&line.source, line.paused), width / 4), cut(&line.queue, width / 3));
        [name, number(line.waiting), dead(&number(line.dead)), number(line.workers), queue]
    };
    let table = table(&["SOURCE", "WAITING", "DEAD", "WORKERS", "QUEUE"], sources.iter().map(row), 1..4);
    [String::new()].into_iter().chain(table.lines().map(str::to_owned)).collect()
}

/// Returns a number of dead letters. Only 0 is nothing to look at.
fn dead(number: &str) -> String {
    if matches!(number, "0" | "-") { number.to_owned() } else { paint(YELLOW, number) }
}

/// Returns the name of a type or a source, and whether it is paused.
fn marked(name: &str, paused: Option<bool>) -> String {
    if paused == Some(true) { format!("{name} (paused)") } else { name.to_owned() }
}

fn unknown() -> String {
    "-".to_owned()
}

/// Returns a number in at most five characters, or whole if there is room.
fn shortened(number: u64, is_wide: bool) -> String {
    match number {
        _ if is_wide => number.to_string(),
        0..100_000 => number.to_string(),
        100_000..10_000_000 => format!("{}k", number / 1_000),
        _ => format!("{}M", number / 1_000_000),
    }
}

fn rate(rate: f64) -> String {
    if rate > 0.0 && rate < 9.95 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// Returns how long the oldest due event has waited, in its largest unit.
fn late(seconds: u64) -> String {
    let then = Timestamp::UNIX_EPOCH + Duration::from_secs(seconds);
    let words = relative(Timestamp::UNIX_EPOCH, then, 1);
    words.strip_prefix("in ").unwrap_or("0").to_owned()
}

fn next(now: Timestamp, due: Timestamp, is_wide: bool) -> String {
    let relative = relative(now, due, 1);
    if is_wide { format!("{relative}  {}", due.strftime("%Y-%m-%d %H:%MZ")) } else { relative }
}

/// Breaks a command at spaces into lines of at most `room` columns, which a shell reads as one. It is not broken within
/// quotes, so a line with a long quoted word may be longer.
fn continued(command: &str, room: usize) -> Vec<String> {
    let (mut words, mut is_quoted) = (vec![String::new()], false);
    for c in command.chars() {
        is_quoted ^= c == '\'';
        match words.last_mut() {
            Some(word) if c != ' ' || is_quoted => word.push(c),
            _ => words.push(String::new()),
        }
    }
    let last = words.len() - 1;
    let mut lines: Vec<String> = Vec::new();
    for (n, word) in words.into_iter().enumerate() {
        // All lines but the last end with ` \`.
        let end = if n == last { 0 } else { 2 };
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() + end <= room => {
                line.push(' ');
                line.push_str(&word);
            }
            Some(line) => {
                line.push_str(" \\");
                lines.push(word);
            }
            None => lines.push(word),
        }
    }
    lines
}

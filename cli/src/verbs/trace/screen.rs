//! Draws what has happened: a block for each event, or a line for each record.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use anstyle::Style;
use hatchery::{
    LifeCycleRecord, TransitionName,
    internals::ttl::roughly,
    jiff::{Timestamp, tz::TimeZone},
};
use hatchery_admin::text::relative;

use super::now::Now;
use crate::{
    output::{CYAN, DIM, GREEN, RED, YELLOW},
    text::{LEAST, cut, folded},
};

/// The columns of the time, of the time since the line before, and of the transition, with the gaps behind them.
const TIME: usize = 14;
const AFTER: usize = 10;
const WHAT: usize = 18;

/// The columns of an event's name in a line of its own.
const NAME: usize = 38;

/// Whether a pause or a breaker is of one of these types, or of everything.
pub(super) fn concerns(record: &LifeCycleRecord, types: &BTreeSet<String>) -> bool {
    match &record.event_type {
        Some(of) => types.contains(of),
        None => record.of.as_deref() == Some("everything"),
    }
}

/// Keeps of the pauses and breakers those of these events' types that held between the first and the last record.
pub(super) fn without_others(mut records: Vec<LifeCycleRecord>, now: &[Now]) -> Vec<LifeCycleRecord> {
    let of_events = || records.iter().filter(|record| record.is_of_an_event());
    let Some(first) = of_events().map(|record| record.at).min() else { return records };
    let has_ended = !now.iter().any(Now::may_start);
    let last = of_events().map(|record| record.at).max().filter(|_| has_ended);
    let types: BTreeSet<String> = of_events().filter_map(|record| record.event_type.clone()).collect();
    // The last record of each pause and breaker before the first one of an event.
    let mut before = BTreeMap::new();
    for (n, record) in records.iter().enumerate().filter(|(_, it)| !it.is_of_an_event() && it.at < first) {
        let is_breaker = matches!(record.transition, TransitionName::BreakerOpened | TransitionName::BreakerClosed);
        before.insert((is_breaker, record.of.clone()), n);
    }
    let holds = |record: &LifeCycleRecord| {
        let has_begun = matches!(record.transition, TransitionName::Paused | TransitionName::BreakerOpened);
        has_begun && record.due.is_none_or(|due| due > first)
    };
    let held: BTreeSet<usize> = before.into_values().filter(|n| holds(&records[*n])).collect();
    let mut n = 0..;
    records.retain(|record| {
        let is_held = n.next().is_some_and(|n| held.contains(&n));
        let is_during = record.at >= first && last.is_none_or(|last| record.at <= last);
        record.is_of_an_event() || concerns(record, &types) && (is_during || is_held)
    });
    records
}

/// Draws all records by event.
pub(super) fn screen(records: &[LifeCycleRecord], now: &[Now], columns: usize) -> String {
    let mut events: Vec<(&str, Option<&str>)> = Vec::new();
    let of_records = records.iter().filter(|record| record.is_of_an_event());
    let of_records = of_records.map(|record| (record.event_type.as_deref().unwrap_or_default(), record.id.as_deref()));
    for event in of_records.chain(now.iter().map(|now| (&*now.event_type, now.id.as_deref()))) {
        if !events.contains(&event) {
            events.push(event);
        }
    }
    let blocks = events.into_iter().map(|(event_type, id)| {
        let is_of_it = |record: &&LifeCycleRecord| {
            if record.is_of_an_event() {
                return record.id.as_deref() == id && record.event_type.as_deref() == Some(event_type);
            }
            record.event_type.as_deref().is_none_or(|of| of == event_type)
        };
        let mut of_it: Vec<_> = records.iter().filter(is_of_it).collect();
        // Programs send their records up to a tenth of a second later, so a run may be told before its publish.
        of_it.sort_by_key(|record| record.at);
        let now: Vec<_> = now.iter().filter(|now| now.event_type == event_type && now.id.as_deref() == id).collect();
        let reference = of_it.iter().find_map(|record| record.reference.as_deref());
        let reference = reference.or_else(|| now.iter().find_map(|now| now.reference.as_deref()));
        block(event_type, reference, id, &of_it, &now, columns)
    });
    blocks.collect::<Vec<_>>().join("\n")
}

/// Draws an event.
fn block(
    event_type: &str,
    reference: Option<&str>,
    id: Option<&str>,
    records: &[&LifeCycleRecord],
    now: &[&Now],
    columns: usize,
) -> String {
    let mut head = vec![cut(event_type, 255)];
    head.extend(id.map(|id| cut(id, 255)));
    head.extend(reference.map(|reference| format!("reference {}", cut(reference, 255))));
    let mut text: String = folded(&head.join("  "), columns.max(LEAST)).join("\n") + "\n";
    if let Some(trace) = records.iter().find_map(|record| record.trace.as_ref()) {
        let _ = writeln!(text, "{DIM}trace {}{DIM:#}", cut(trace, 64));
    }
    let (mut day, mut before, mut by) = (None, None::<Timestamp>, None::<&String>);
    for record in records {
        let today = record.at.strftime("%Y-%m-%d").to_string();
        if day.as_ref() != Some(&today) {
            let _ = writeln!(text, "{DIM}{today} UTC{DIM:#}");
            day = Some(today);
        }
        let after = before.map(|before| after(before, record.at)).unwrap_or_default();
        before = Some(record.at);
        let head = format!("{DIM}{:<TIME$}{after:<AFTER$}{DIM:#}", time(record.at));
        // The program of the line before is not said again.
        let teller = record.by.as_ref().filter(|teller| Some(*teller) != by);
        by = record.by.as_ref();
        text += &row(&head, TIME + AFTER, &record.transition, &details(record, teller), columns);
    }
    for now in now {
        let due = now.due.filter(|_| now.may_start()).map(|due| format!("due {}", relative(Timestamp::now(), due, 2)));
        let places = now.place.iter().map(|place| cut(place, 1_000)).chain(due);
        let commands = now.commands.iter().map(|command| format!("$ {}", cut(command, 1_000)));
        let details = places.chain(commands).collect::<Vec<_>>().join("; ");
        let head = format!("{DIM}{:<TIME$}{:AFTER$}{DIM:#}", "now", "");
        text += &laid_out(&head, TIME + AFTER, Style::new(), &now.state, &details, columns);
    }
    text
}

/// Draws one record with the name of its event.
pub(super) fn line(record: &LifeCycleRecord, columns: usize) -> String {
    let names = [&record.event_type, &record.reference, &record.id];
    let name: Vec<String> = names.into_iter().flatten().map(|name| cut(name, NAME)).collect();
    let head = format!("{DIM}{}{DIM:#}  ", record.at.strftime("%Y-%m-%d %H:%M:%SZ"));
    let details = details(record, record.by.as_ref());
    // A pause says itself what it is of.
    let name = Some(name.join(" ")).filter(|name| !name.is_empty() && record.of.is_none());
    let details =
        name.into_iter().chain(Some(details).filter(|details| !details.is_empty())).collect::<Vec<_>>().join("; ");
    row(&head, 22, &record.transition, &details, columns)
}

fn row(head: &str, width: usize, transition: &TransitionName, details: &str, columns: usize) -> String {
    let style = match transition {
        TransitionName::Done | TransitionName::BreakerClosed | TransitionName::Resumed => GREEN,
        TransitionName::Failed | TransitionName::LeaseLost | TransitionName::Paused => YELLOW,
        TransitionName::DeadLettered
        | TransitionName::Dropped
        | TransitionName::Expired
        | TransitionName::BreakerOpened => RED,
        name if is_of_a_person(name) => CYAN,
        _ => Style::new(),
    };
    laid_out(head, width, style, transition.as_str(), details, columns)
}

/// Whether a person has done it.
fn is_of_a_person(name: &TransitionName) -> bool {
    use TransitionName::{Cancelled, LetterDiscarded, Replayed, Rescheduled, RunNow};
    matches!(name, Cancelled | LetterDiscarded | Replayed | Rescheduled | RunNow)
}

fn laid_out(head: &str, width: usize, style: Style, what: &str, details: &str, columns: usize) -> String {
    let (what, indent) = (cut(what, WHAT - 2), width + WHAT);
    let room = columns.max(LEAST).saturating_sub(indent).max(20);
    let gap = WHAT.saturating_sub(what.chars().count());
    let details = folded(details, room).join(&format!("\n{:indent$}", ""));
    let gap = if details.is_empty() { 0 } else { gap };
    format!("{head}{style}{what}{style:#}{:gap$}{details}\n", "")
}

/// Says what a record adds to its transition.
fn details(record: &LifeCycleRecord, by: Option<&String>) -> String {
    let mut parts: Vec<String> = Vec::new();
    parts.extend(record.attempt.map(|attempt| match record.max_attempts {
        Some(most) => format!("attempt {attempt} of {most}"),
        None => format!("attempt {attempt}"),
    }));
    parts.extend(record.of.as_ref().map(|of| cut(of, 100)));
    parts.extend(record.reason.as_ref().map(|reason| cut(reason, 1_000)));
    parts.extend(record.took.map(|took| format!("took {}", roughly(Duration::from_millis(took)))));
    parts.extend(what_follows(record));
    parts.extend(by.map(|by| format!("by {}", cut(by, 100))));
    parts.join("; ")
}

/// Says what follows, and when.
fn what_follows(record: &LifeCycleRecord) -> Option<String> {
    let due = record.due.map(|due| (wait(record.at, due), due.strftime("%Y-%m-%d %H:%M:%SZ").to_string()));
    let (transition, then) = (&record.transition, record.then.as_deref());
    match (transition, then, due) {
        (TransitionName::Expired, Some("dead-letter"), _) => Some("it is a dead letter".to_owned()),
        (TransitionName::Expired, Some(_), _) => Some("it is gone".to_owned()),
        (TransitionName::Failed, Some("in-place"), Some((wait, _))) => Some(format!("again in the worker in {wait}")),
        (TransitionName::Failed, Some("block"), Some((wait, _))) => {
            Some(format!("again in {wait}, and those behind it wait"))
        }
        (TransitionName::Failed, _, Some((wait, _))) => Some(format!("retry in {wait}")),
        (TransitionName::Requeued, _, Some((wait, _))) => Some(format!("again in {wait}")),
        (TransitionName::Paused, _, Some((_, at))) => Some(format!("until {at}")),
        (TransitionName::Rescheduled, _, Some((_, at))) => Some(format!("to {at}, with 0 attempts")),
        (_, _, Some((_, at))) => record.due.is_some_and(|due| due > record.at).then(|| format!("due {at}")),
        (_, _, None) => None,
    }
}

fn wait(from: Timestamp, to: Timestamp) -> String {
    roughly(Duration::try_from(to.duration_since(from)).unwrap_or_default())
}

/// Returns the time since the line before. Clocks of two machines differ, so it may be negative.
fn after(before: Timestamp, at: Timestamp) -> String {
    // Two units, so that it fits.
    let wait = wait(before, at);
    format!("+{}", wait.split(' ').take(2).collect::<Vec<_>>().join(" "))
}

fn time(at: Timestamp) -> String {
    at.to_zoned(TimeZone::UTC).strftime("%H:%M:%S%.3f").to_string()
}

//! Writes events as JSON: as they are found, or with the result of a change.

use std::{collections::BTreeMap, io};

use hatchery::{
    Cancelled, EventInfo, MoveOutcome,
    internals::{register::DedupSlot, time::millis_text},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{Format, Output};

/// An event.
#[derive(Clone, Serialize, JsonSchema)]
pub(crate) struct EventView {
    /// Its type.
    #[serde(rename = "type")]
    event_type: String,
    /// The object that it is about.
    reference: Option<String>,
    /// Its id; `null` if the register has forgotten it.
    id: Option<String>,
    /// The slot in which it competes with other events of its reference; `null` if the register has none.
    slot: Option<String>,
    /// `waiting`, `running`, `retry`, `dead-letter`, `handled` or `cancelled`; `null` if the register has no slot. `events
    /// show` also says `started`: the event was started and has not ended, and no worker holds its lease.
    pub(super) state: Option<&'static str>,
    /// Whether the event runs, or an event that it replaces.
    running: bool,
    /// When it is due.
    due: Option<String>,
    /// Failed attempts so far; `null` for an event that was cancelled by name.
    attempts: Option<u32>,
    /// The reason why the event waits, as the register has it.
    reason: Option<String>,
    /// The error of its last attempt.
    error: Option<String>,
    /// The version of the copy that still has to run, if it competes with others.
    version: Option<i64>,
    /// The generation of the copy that still has to run.
    generation: Option<i64>,
}

/// An event, and what a command has made of it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Changed {
    #[serde(flatten)]
    event: EventView,
    /// The result in one word; `null` in a dry run, unless the event could not be moved.
    result: Option<&'static str>,
    /// Why the event stays as it was.
    why: Option<String>,
    /// The due time before the event was moved.
    was_due: Option<String>,
}

/// The result of a command that changes events.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Changes {
    /// The command: `cancel`, `reschedule` or `run-now`.
    verb: &'static str,
    /// Whether nothing was changed.
    dry_run: bool,
    /// The number of events.
    found: u64,
    /// The number of events by result.
    results: BTreeMap<&'static str, u64>,
    /// The first of the events.
    events: Vec<Changed>,
    /// Whether there are more events than these.
    more: bool,
}

/// Returns an event as JSON. Times have milliseconds, as on the wire.
pub(super) fn view(event: &EventInfo) -> EventView {
    EventView {
        event_type: event.event_type.to_string(),
        reference: event.reference.as_ref().map(ToString::to_string),
        id: event.id.clone(),
        slot: Some(event.slot.to_string()),
        state: Some(event.state.as_str()),
        running: event.running,
        due: event.due.map(millis_text),
        attempts: Some(event.attempts),
        reason: event.reason.clone(),
        error: event.error().map(str::to_owned),
        version: event.copy.as_ref().map(|copy| copy.version).filter(|version| *version > 0),
        generation: event.copy.as_ref().map(|copy| copy.generation),
    }
}

/// Returns the word for what a cancel did to an event.
pub(crate) const fn result_of_cancel(slot: &Cancelled) -> &'static str {
    match (slot.waiting, slot.running) {
        (true, _) => "cancelled",
        (false, true) => "running",
        (false, false) => "nothing",
    }
}

/// Returns the word for what a move did to an event.
pub(crate) const fn result_of_move(moved: &MoveOutcome) -> &'static str {
    match moved {
        MoveOutcome::Done => "done",
        MoveOutcome::Running => "running",
        MoveOutcome::NotKept(_) => "not-kept",
        _ => "gone",
    }
}

/// Returns a slot that was cancelled by name as JSON. Less is known of it than of an event that was found.
pub(super) fn cancelled(
    event_type: &str,
    reference: Option<&str>,
    id: Option<&str>,
    slot: Option<&Cancelled>,
) -> EventView {
    let due = slot.and_then(|slot| match slot.slot {
        DedupSlot::DatedAt(ms) | DedupSlot::RequeuedAt(ms) => Timestamp::from_millisecond(ms).ok(),
        _ => None,
    });
    let id = slot.and_then(|slot| slot.id.as_deref()).or(id);
    EventView {
        event_type: event_type.to_owned(),
        reference: reference.map(str::to_owned),
        id: id.map(str::to_owned),
        slot: slot.map(|slot| slot.slot.to_string()),
        state: slot.map(|slot| if slot.running { "running" } else { "waiting" }),
        running: slot.is_some_and(|slot| slot.running),
        due: due.map(millis_text),
        attempts: None,
        reason: None,
        error: None,
        version: None,
        generation: None,
    }
}

/// How many events of a filter one JSON document holds. There may be millions; `-o ndjson` has a line for each.
pub(super) const SHOWN: usize = 20;

/// The results of a verb on events. Every verb has the same JSON, for named and for found events, and for a dry run.
pub(super) struct Answers {
    verb: &'static str,
    dry_run: bool,
    /// How many events the document holds at most.
    most: usize,
    output: Output,
    found: u64,
    results: BTreeMap<&'static str, u64>,
    events: Vec<Changed>,
    /// The error of the first answer that could not be written. It does not stop the verb half-way.
    unwritten: Option<io::Error>,
}

/// The result for one event.
#[derive(Default)]
pub(super) struct Became {
    /// The result in one word; none in a dry run, unless the event could not be moved.
    pub(super) result: Option<&'static str>,
    /// The reason why the event stays as it was.
    pub(super) why: Option<String>,
    /// The event's new due time.
    pub(super) due: Option<Timestamp>,
}

impl Answers {
    pub(super) fn new(verb: &'static str, dry_run: bool, most: usize, output: Output) -> Self {
        let (results, events) = (BTreeMap::new(), Vec::new());
        Self { verb, dry_run, most, output, found: 0, results, events, unwritten: None }
    }

    /// Adds the result for one event that was found. With `-o ndjson` writes it at once.
    pub(super) fn add(&mut self, event: EventView, became: Became) {
        self.found += 1;
        self.answer(event, became);
    }

    /// Adds the result for a name that matched no event, and whose cancel is remembered.
    pub(super) fn remember(&mut self, name: EventView) {
        self.answer(name, Became { result: Some("remembered"), ..Became::default() });
    }

    fn answer(&mut self, event: EventView, became: Became) {
        if let Some(result) = became.result {
            *self.results.entry(result).or_default() += 1;
        }
        if self.output.is_text() {
            return;
        }
        let mut event = Changed { event, result: became.result, why: became.why, was_due: None };
        if let Some(due) = became.due {
            event.was_due = event.event.due.replace(millis_text(due));
        }
        if self.output.format == Format::Ndjson {
            if let Err(error) = self.output.json(&event) {
                self.unwritten.get_or_insert(error);
            }
        } else if self.events.len() < self.most {
            self.events.push(event);
        }
    }

    /// Writes the document with `-o json`. Returns the first error of writing any answer.
    pub(super) fn end(self) -> io::Result<()> {
        if self.output.format == Format::Json {
            let more = self.found > u64::try_from(self.events.len()).unwrap_or(u64::MAX);
            self.output.json(&Changes {
                verb: self.verb,
                dry_run: self.dry_run,
                found: self.found,
                results: self.results,
                events: self.events,
                more,
            })?;
        }
        self.unwritten.map_or(Ok(()), Err)
    }
}

//! An event that the register knows, as JSON, and the words for what a command makes of it.

use std::borrow::Cow;

use hatchery::{
    Cancelled, EventInfo, MoveOutcome, Topology,
    internals::{register::DedupSlot, schedule::link::Named, time::millis_text},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The object that it is about.
    pub reference: Option<String>,
    /// Its id; `null` if the register has forgotten it.
    pub id: Option<String>,
    /// The slot in which it competes with other events of its reference; `null` if the register has none.
    pub slot: Option<String>,
    /// `waiting`, `running`, `retry`, `dead-letter`, `handled` or `cancelled`; `null` if the register has no slot. `events
    /// show` also says `started`: the event was started and has not ended, and no worker holds its lease.
    pub state: Option<Cow<'static, str>>,
    /// Whether the event runs, or an event that it replaces.
    pub running: bool,
    /// When it is due.
    pub due: Option<String>,
    /// Failed attempts so far; `null` for an event that was cancelled by name.
    pub attempts: Option<u32>,
    /// The reason why the event waits, as the register has it.
    pub reason: Option<String>,
    /// The error of its last attempt.
    pub error: Option<String>,
    /// The version of the copy that still has to run, if it competes with others.
    pub version: Option<i64>,
    /// The generation of the copy that still has to run.
    pub generation: Option<i64>,
    /// The schedule that it belongs to; `null` if it belongs to none of the file.
    pub schedule: Option<OfSchedule>,
}

/// The schedule of an event, and which of its events it is. Without instant and number it is one of `topology schedule run-now`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OfSchedule {
    /// The schedule.
    pub name: String,
    /// The instant for which the event runs, with `mode: fixed`.
    #[schemars(with = "Option<String>")]
    slot: Option<Timestamp>,
    /// The number of the event, with `mode: sequential`.
    number: Option<i64>,
}

impl OfSchedule {
    /// Returns the schedule of an event. `None` if it belongs to none of the file.
    #[must_use]
    pub fn of(event: &EventInfo, topology: &Topology) -> Option<Self> {
        let (name, named) = Named::read(event.id.as_deref()?)?;
        topology.schedules.get(name).filter(|definition| definition.event_type == event.event_type)?;
        let (slot, number) = match named {
            Named::Instant(at) | Named::Backfill(at) => (Some(at), None),
            Named::Number(number) => (None, Some(number)),
            Named::Extra => (None, None),
        };
        Some(Self { name: name.to_owned(), slot, number })
    }

    /// Returns the schedule and the event in words.
    #[must_use]
    pub fn text(&self) -> String {
        match (self.slot, self.number) {
            (Some(slot), _) => format!("{}, slot {slot}", self.name),
            (None, Some(number)) => format!("{}, number {number}", self.name),
            (None, None) => format!("{}, run now by a person", self.name),
        }
    }
}

/// An event, and what a command has made of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedEvent {
    /// The event.
    #[serde(flatten)]
    pub event: EventView,
    /// The result in one word; `null` in a dry run, unless the event could not be moved.
    pub result: Option<Cow<'static, str>>,
    /// Why the event stays as it was.
    pub why: Option<String>,
    /// The due time before the event was moved.
    pub was_due: Option<String>,
}

impl ChangedEvent {
    /// Returns an event with the result in one word, the reason why it stays as it was, and its new time.
    #[must_use]
    pub fn new(
        mut event: EventView,
        result: Option<&'static str>,
        why: Option<String>,
        due: Option<Timestamp>,
    ) -> Self {
        let was_due = due.and_then(|due| event.due.replace(millis_text(due)));
        Self { event, result: result.map(Cow::Borrowed), why, was_due }
    }
}

/// Returns an event as JSON. Times have milliseconds, as on the wire.
#[must_use]
pub fn view(event: &EventInfo, topology: &Topology) -> EventView {
    EventView {
        event_type: event.event_type.to_string(),
        reference: event.reference.as_ref().map(ToString::to_string),
        id: event.id.clone(),
        slot: Some(event.slot.to_string()),
        state: Some(event.state.as_str().into()),
        running: event.running,
        due: event.due.map(millis_text),
        attempts: Some(event.attempts),
        reason: event.reason.clone(),
        error: event.error().map(str::to_owned),
        version: event.copy.as_ref().map(|copy| copy.version).filter(|version| *version > 0),
        generation: event.copy.as_ref().map(|copy| copy.generation),
        schedule: OfSchedule::of(event, topology),
    }
}

/// Returns the word for what a cancel did to an event.
#[must_use]
pub const fn result_of_cancel(slot: &Cancelled) -> &'static str {
    match (slot.waiting, slot.running) {
        (true, _) => "cancelled",
        (false, true) => "running",
        (false, false) => "nothing",
    }
}

/// Returns the word for what a move did to an event.
#[must_use]
pub const fn result_of_move(moved: &MoveOutcome) -> &'static str {
    match moved {
        MoveOutcome::Done => "done",
        MoveOutcome::Running => "running",
        MoveOutcome::NotKept(_) => "not-kept",
        _ => "gone",
    }
}

/// Returns a slot that was cancelled by name as JSON. Less is known of it than of an event that was found.
#[must_use]
pub fn cancelled(event_type: &str, reference: Option<&str>, id: Option<&str>, slot: Option<&Cancelled>) -> EventView {
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
        state: slot.map(|slot| if slot.running { "running" } else { "waiting" }.into()),
        running: slot.is_some_and(|slot| slot.running),
        due: due.map(millis_text),
        attempts: None,
        reason: None,
        error: None,
        version: None,
        generation: None,
        schedule: None,
    }
}

//! An event that the register knows, as JSON, and the words for what a command makes of it.

use std::borrow::Cow;

use hatchery::{
    Cancelled, EventInfo, MoveOutcome,
    internals::{register::DedupSlot, time::millis_text},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An event.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
pub struct EventView {
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
    pub state: Option<Cow<'static, str>>,
    /// Whether the event runs, or an event that it replaces.
    running: bool,
    /// When it is due.
    pub due: Option<String>,
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

/// Returns an event as JSON. Times have milliseconds, as on the wire.
#[must_use]
pub fn view(event: &EventInfo) -> EventView {
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
    }
}

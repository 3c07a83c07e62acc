//! The schedule that an event belongs to. The register knows of it by the event's id.

use hatchery::{EventInfo, Topology, internals::schedule::link::Named};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

/// The schedule of an event, and which of its events it is. Without instant and number it is one of `topology schedule run-now`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct OfSchedule {
    /// The schedule.
    pub(super) name: String,
    /// The instant for which the event runs, with `mode: fixed`.
    #[schemars(with = "Option<String>")]
    slot: Option<Timestamp>,
    /// The number of the event, with `mode: sequential`.
    number: Option<i64>,
}

impl OfSchedule {
    /// Returns the schedule of an event. `None` if it belongs to none of the file.
    pub(super) fn of(event: &EventInfo, topology: &Topology) -> Option<Self> {
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
    pub(super) fn text(&self) -> String {
        match (self.slot, self.number) {
            (Some(slot), _) => format!("{}, slot {slot}", self.name),
            (None, Some(number)) => format!("{}, number {number}", self.name),
            (None, None) => format!("{}, run now by a person", self.name),
        }
    }
}

//! Where an event is now.

use hatchery::{EventInfo, jiff::Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::super::events::EventLocation;

/// Where an event is now.
#[derive(Serialize, JsonSchema)]
pub(super) struct Now {
    /// The event's type.
    #[serde(rename = "type")]
    pub(super) event_type: String,
    /// The object that the event is about.
    pub(super) reference: Option<String>,
    /// The event's id; `null` if Redis does not know it any more.
    pub(super) id: Option<String>,
    /// The event's state, as in `topology events show`.
    pub(super) state: &'static str,
    /// When it is due.
    #[schemars(with = "Option<String>")]
    pub(super) due: Option<Timestamp>,
    /// The place of the event in words; `null` if it has ended.
    #[serde(rename = "where")]
    pub(super) place: Option<String>,
    /// Commands that tell more of the event's place, or publish the event again.
    pub(super) commands: Vec<String>,
}

impl Now {
    pub(super) fn of((event, state, place): (EventInfo, &'static str, Option<EventLocation>)) -> Self {
        let EventInfo { event_type, reference, id, due, .. } = event;
        let reference = reference.map(|reference| reference.to_string());
        let (place, commands) = place.map(|place| (place.text, place.commands)).unzip();
        let commands = commands.unwrap_or_default();
        Self { event_type: event_type.to_string(), reference, id, state, due, place, commands }
    }

    /// Whether the event may start by itself.
    pub(super) fn may_start(&self) -> bool {
        !matches!(self.state, "handled" | "cancelled" | "dead-letter")
    }
}

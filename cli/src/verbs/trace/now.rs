//! Where an event is now.

use hatchery::jiff::Timestamp;
use hatchery_admin::{event_view::EventView, location::Placed};
use schemars::JsonSchema;
use serde::Serialize;

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
    pub(super) state: String,
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
    pub(super) fn of(placed: Placed) -> Self {
        let Placed { event: EventView { event_type, reference, id, state, due, .. }, place, commands, .. } = placed;
        let due = due.and_then(|due| due.parse().ok());
        let state = state.unwrap_or_default().into_owned();
        Self { event_type, reference, id, state, due, place, commands }
    }

    /// Whether the event may start by itself.
    pub(super) fn may_start(&self) -> bool {
        !matches!(self.state.as_str(), "handled" | "cancelled" | "dead-letter")
    }
}

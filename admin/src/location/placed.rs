//! Events with their places.

use std::time::Duration;

use hatchery::{EventInfo, Events, EventsError, State, Topology, internals::spec::TypeSpec};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::{
    counts::QueueCounts,
    locate::{EventLocation, locate},
};
use crate::event_view::{EventView, view};

/// How long the second look waits. The management API's figures are up to five seconds old.
const APART: Duration = Duration::from_secs(6);

/// An event and where it is.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Placed {
    #[serde(flatten)]
    pub event: EventView,
    /// The queues in one of which the event is, as far as is known. Empty if it has ended, or if none of them can have it.
    pub queues: Vec<String>,
    /// The place of the event in words; `null` if the file does not have its type.
    #[serde(rename = "where")]
    pub place: Option<String>,
    /// Commands that tell more of the event's place, or publish the event again.
    pub commands: Vec<String>,
    /// Whether a worker holds the lease of its run; `null` if that was not found out.
    pub leased: Option<bool>,
    /// The number of starts of the event since it was last settled or given back.
    pub starts: u32,
    /// How many attempts its type gives it; `null` if it has as many as it needs, or the file does not have its type.
    pub max_attempts: Option<u32>,
}

/// An event as Redis knows it, with its place if that was asked for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum KnownEvent {
    /// With its place.
    Placed(Box<Placed>),
    /// Without it.
    Event(Box<EventView>),
}

impl Placed {
    /// Returns an event with its place.
    #[must_use]
    pub fn of(event: &EventInfo, topology: &Topology, place: Option<EventLocation>) -> Self {
        let spec = topology.types.get(&event.event_type).filter(|spec| !TypeSpec::keeps_order(spec));
        let EventLocation { text, queues, commands, .. } = place.unwrap_or_default();
        let state = match (event.state, event.leased) {
            // An event that was started and has no lease may have no worker any more.
            (State::Running, Some(false)) => "started",
            (state, _) => state.as_str(),
        };
        Self {
            event: EventView { state: Some(state.into()), ..view(event, topology) },
            queues,
            place: Some(text).filter(|text| !text.is_empty()),
            commands,
            leased: event.leased,
            starts: event.starts,
            max_attempts: spec.map(|spec| spec.retry.max_attempts),
        }
    }

    /// Returns whether the event neither waits nor runs any more.
    #[must_use]
    pub const fn is_past(&self) -> bool {
        self.event.generation.is_none() && !self.event.running
    }
}

/// Returns the events with their places, from the counts of queues.
///
/// # Errors
/// When the queues cannot be counted, or the register does not answer.
pub async fn placed<E: From<EventsError>, F: Future<Output = Result<QueueCounts, E>>>(
    events: &Events,
    known: &[EventInfo],
    count: impl Fn() -> F,
) -> Result<Vec<Placed>, E> {
    let (topology, now) = (&events.shared.topology, Timestamp::now());
    let mut places: Vec<Option<EventLocation>> = Vec::new();
    // Between two queues an event is in neither for a moment. So it counts as removed only if two looks say so.
    for look in 0..2 {
        if look > 0 {
            sleep(APART).await;
        }
        let seen = if known.is_empty() { QueueCounts::default() } else { count().await? };
        places = known.iter().map(|event| locate(event, topology, &seen, now)).collect();
        if !places.iter().flatten().any(|place| place.is_removed) {
            break;
        }
    }
    let mut all = Vec::new();
    for (event, mut place) in known.iter().zip(places) {
        if let Some(place) = place.as_mut().filter(|place| place.is_removed) {
            let not_kept = events.not_kept(std::slice::from_ref(event), None).await?;
            place.remedy(event, not_kept.iter().all(Option::is_none), now);
        }
        all.push(Placed::of(event, topology, place));
    }
    Ok(all)
}

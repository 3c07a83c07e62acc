//! The events of a schedule.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;

use super::{
    definition::Definition,
    link::{HEADER, Link},
    rule::Arm,
};
use crate::domain::{
    event::Event,
    message::{Properties, REPLAYS, Value},
    register::CopyVersion,
    words::{EventType, Reference},
};

/// The fields that all events of a schedule have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    link: Link,
    event_type: EventType,
    reference: Option<Reference>,
    payload: Bytes,
    content_type: Option<String>,
    properties: Properties,
}

impl Template {
    /// Returns the template of a definition.
    #[must_use]
    pub fn of(definition: &Definition) -> Self {
        Self {
            link: definition.link(0),
            event_type: definition.event_type.clone(),
            reference: definition.reference.clone(),
            payload: definition.payload.clone(),
            content_type: Some("application/json".to_owned()),
            properties: Properties::default(),
        }
    }

    /// Returns the template by which this event was made. `None` if no schedule has published it.
    #[must_use]
    pub fn of_event(event: &Event) -> Option<Self> {
        let mut properties = event.properties.clone();
        // They tell of this event alone.
        properties.headers.remove(REPLAYS);
        Some(Self {
            link: Link::clone(event.schedule.as_ref()?),
            event_type: event.event_type.clone(),
            reference: event.reference.clone(),
            payload: event.payload.clone(),
            content_type: event.content_type.clone(),
            properties,
        })
    }

    /// Returns an event of the chain.
    #[must_use]
    pub fn event(self, arm: Arm, now: Timestamp) -> Event {
        let link = self.link.at(arm.position);
        let id = link.id();
        self.linked(link, id, arm.due, now)
    }

    /// Returns an event outside the chain, for this position.
    #[must_use]
    #[cfg(any(test, feature = "internals"))]
    pub fn extra(self, id: String, arm: Arm, now: Timestamp) -> Event {
        let link = Link { is_extra: true, ..self.link.at(arm.position) };
        self.linked(link, id, arm.due, now)
    }

    fn linked(self, link: Link, id: String, due: i64, now: Timestamp) -> Event {
        let Self { link: _, event_type, reference, payload, content_type, mut properties } = self;
        properties.headers.insert(HEADER.to_owned(), Value::text(&link.text()));
        Event {
            stamp: CopyVersion::uncontested(&id, 0),
            reason: Some(format!("schedule: {}", link.schedule)),
            id,
            event_type,
            reference,
            created_at: now,
            nbf: Timestamp::from_millisecond(due).ok(),
            expires: None,
            attempts: 0,
            busy: 0,
            crashes: 0,
            by_hand: false,
            first_failure: None,
            last_failure: None,
            content_type,
            correlation_id: None,
            traceparent: None,
            payload,
            properties,
            schedule: Some(Arc::new(link)),
        }
    }
}

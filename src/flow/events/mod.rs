//! What people do to events that wait: look for them, cancel them, put them off, run them now.
//!
//! RabbitMQ's queues are not touched. A cancelled event's message comes when it is due, and is dropped as stale; what is
//! moved is published again, and its former message is dropped likewise. The register says what waits, and
//! nothing is decided from its index but what is looked at.

mod bulk;
mod cancel;
mod moving;
mod search;
mod sending;
#[cfg(test)]
mod tests;
mod which;

use std::{fmt, sync::Arc, time::Duration};

pub use self::{
    moving::{Moved, NotKept},
    which::Which,
};
use super::{outage::BrokerOutage, publish::PublishError, ways::Ways};
use crate::{
    domain::{
        register::Terms,
        spec::{Topology, TypeSpec},
        words::{EventType, UnknownType, WordError},
    },
    ports::{Broker, Clock, Index, Register, RegisterError},
};

/// The events of a topology, as far as the register knows them. Clones share the connections.
///
/// ```no_run
/// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::EventsError> {
/// use futures_util::{StreamExt, TryStreamExt};
/// use hatchery::{Filter, State, Which};
///
/// let events = hatchery.events();
/// // What waits for its next attempt, the next one first.
/// let mut retries = events.search(&Filter::default().state(State::Retry)).take(20).boxed();
/// while let Some(event) = retries.try_next().await? {
///     println!("{} {:?}: {:?}", event.event_type, event.reference, event.reason);
/// }
/// // Employee 1234 has left.
/// for cancelled in events.cancel(&Which::reference("hr-import", "1234")).await? {
///     println!("{}: waiting {}, running {}", cancelled.slot, cancelled.waiting, cancelled.running);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Events {
    shared: Arc<Shared>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("topology", &self.shared.topology.name).finish_non_exhaustive()
    }
}

struct Shared {
    topology: Arc<Topology>,
    ways: Ways,
    broker: Arc<dyn Broker>,
    register: Arc<dyn Register>,
    index: Arc<dyn Index>,
    clock: Arc<dyn Clock>,
    outage: BrokerOutage,
}

/// Why events are not found, cancelled or moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventsError {
    /// The file has no such type.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// Redis knows nothing of this type's events.
    #[error("{event_type} has `register: off`: its events are in RabbitMQ alone, and cannot be looked for")]
    Unregistered {
        /// The type.
        event_type: String,
    },
    /// The reference.
    #[error(transparent)]
    Reference(#[from] WordError),
    /// The id.
    #[error("an id has 1 to 255 bytes, this one has {0}")]
    Id(usize),
    /// Immediate events of this type are told apart by their ids alone.
    #[error(
        "immediate events of {event_type} compete with nothing (`coalesce: {{ immediate: off }}`), so there may be many of \
         one reference: name one by its id, or all events of the reference"
    )]
    Alone {
        /// The type.
        event_type: String,
    },
    /// It is known, by another name.
    #[error("nothing is known by this name, but the event {known}: nothing is cancelled")]
    OtherName {
        /// Its id and reference.
        known: String,
    },
    /// Redis is away, or refuses.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A moved event was not confirmed. It may come twice: at its old time, and at the new one.
    #[error("a moved event may come at both times: {0}")]
    Publish(#[from] PublishError),
}

impl Events {
    /// The events of a topology, over any broker and register.
    #[must_use]
    pub fn new(
        topology: Arc<Topology>,
        broker: Arc<dyn Broker>,
        register: Arc<dyn Register>,
        index: Arc<dyn Index>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let ways = Ways::of(&topology);
        Self {
            shared: Arc::new(Shared {
                topology,
                ways,
                broker,
                register,
                index,
                clock,
                outage: BrokerOutage::default(),
            }),
        }
    }
}

impl Shared {
    /// A type that the register knows.
    fn registered(&self, name: &str) -> Result<(&EventType, &TypeSpec), EventsError> {
        let types = &self.topology.types;
        match types.get_key_value(name) {
            Some((event_type, spec)) if spec.register => Ok((event_type, spec)),
            Some((event_type, _)) => Err(EventsError::Unregistered { event_type: event_type.to_string() }),
            None => Err(UnknownType::among(name, types.keys()).into()),
        }
    }

    fn terms(&self, event_type: &EventType) -> Option<Terms> {
        self.topology.types.get(event_type).map(|spec| spec.terms(&self.topology.redis))
    }

    /// How far away an event can be due that was published for the longest delay there is.
    fn horizon(&self) -> Duration {
        let named = self.topology.hatcheries.iter().map(|ttl| ttl.as_duration()).max().unwrap_or_default();
        self.topology.ladder.longest().max(named)
    }
}

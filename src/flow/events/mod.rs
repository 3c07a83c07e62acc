//! What people do to events that wait: look for them, cancel them, put them off, run them now.
//!
//! RabbitMQ's queues are not touched. A cancelled event's message comes when it is due, and is dropped as stale; what is
//! moved is published again, and its former message is dropped likewise. The register says what waits, and
//! nothing is decided from its index but what is looked at.

mod bulk;
mod cancel;
mod left_behind;
mod moving;
mod search;
mod sending;
#[cfg(test)]
mod tests;
mod which;

use std::{fmt, sync::Arc, time::Duration};

pub use self::{
    left_behind::LeftBehind,
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

/// The events of a topology that wait: to look for them, cancel them, and give them another time.
///
/// It knows what the register knows. Clones share the connections. [`Hatchery::events`](crate::Hatchery::events) makes
/// it, and [`Builder::events`](crate::Builder::events) for who needs nothing else.
///
/// Those that are named one by one, by a reference or an id, are a [`Which`]: [`show`](Self::show),
/// [`cancel`](Self::cancel), [`reschedule`](Self::reschedule), [`run_now`](Self::run_now). All that have something in
/// common are a [`Filter`](crate::Filter): [`search`](Self::search), [`cancel_all`](Self::cancel_all),
/// [`reschedule_all`](Self::reschedule_all), [`run_now_all`](Self::run_now_all). Those answer with streams, whose
/// methods are in `futures-util`.
///
/// Types with `register: off` are in RabbitMQ alone, and not among them. Without the event's message, which Redis has
/// only where the type says `keep-payload`, an event can be cancelled and put off, but not brought forward.
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
///     println!("{}: running {}", cancelled.slot, cancelled.running);
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
///
/// What is wrong with the question is said without asking anybody:
///
/// ```
/// use hatchery::{EventsError, Hatchery, Which};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = "version: 1\nname: billing\ntypes: { mail: {}, print: { register: off } }";
/// let events = Hatchery::builder(hatchery::file::read(file, "topology.yaml")?).events()?;
///
/// let off = events.show(&Which::reference("print", "1234")).await.expect_err("not in Redis");
/// assert!(matches!(off, EventsError::Unregistered { .. }));
/// let long = events.show(&Which::id("mail", "x".repeat(256))).await.expect_err("no id");
/// assert_eq!(long.to_string(), "an id has 1 to 255 bytes, this one has 256");
/// # Ok(())
/// # }
/// ```
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
    /// The reference is empty, longer than 255 bytes, or has a control character.
    #[error(transparent)]
    Reference(#[from] WordError),
    /// The id has not 1 to 255 bytes, but so many.
    #[error("an id has 1 to 255 bytes, this one has {0}")]
    Id(usize),
    /// Immediate events of this type are told apart by their ids alone, and [`Which::immediate`] names none.
    #[error(
        "immediate events of {event_type} compete with nothing (`coalesce: {{ immediate: off }}`), so there may be many of \
         one reference: name one by its id, or all events of the reference"
    )]
    Alone {
        /// The type.
        event_type: String,
    },
    /// An event with this id waits, under another reference or in another spelling of the same UUID. Nothing was
    /// cancelled.
    #[error("nothing is known by this name, but the event {known}: nothing is cancelled")]
    OtherName {
        /// Its id and reference.
        known: String,
    },
    /// Redis is away, or refuses. Of several events some may be done: ask again.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A moved event was not confirmed. It may come twice: at its old time, and at the new one.
    #[error("a moved event may come at both times: {0}")]
    Publish(PublishError),
}

// Its text has the cause's, so it has no source: whoever shows the whole chain would show that twice.
impl From<PublishError> for EventsError {
    fn from(error: PublishError) -> Self {
        Self::Publish(error)
    }
}

impl Events {
    /// The events of a topology, over any broker and register. [`Hatchery::events`](crate::Hatchery::events) is the
    /// usual way; this one is for tests, and not part of what can be relied on.
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

//! The broker, the register and the topology that all calls of [`Events`] share.

use std::{fmt, sync::Arc, time::Duration};

use super::error::EventsError;
use crate::{
    domain::{
        register::Terms,
        spec::{Topology, TypeSpec},
        words::{EventType, UnknownType},
    },
    flow::{outage::BrokerOutage, routes::Routes},
    ports::{Broker, Clock, Index, Register},
};

/// The events of a topology that wait: to look for them, cancel them, and give them another time.
///
/// It knows what the register knows. Clones share the connections. [`Hatchery::events`](crate::Hatchery::events) makes
/// it, and [`Builder::events`](crate::Builder::events) for who needs nothing else.
///
/// Those that are named one by one, by a reference or an id, are a [`EventSelector`](super::EventSelector): [`show`](Self::show),
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
/// use hatchery::{Filter, State, EventSelector};
///
/// let events = hatchery.events();
/// // What waits for its next attempt, the next one first.
/// let mut retries = events.search(&Filter::default().state(State::Retry)).take(20).boxed();
/// while let Some(event) = retries.try_next().await? {
///     println!("{} {:?}: {:?}", event.event_type, event.reference, event.reason);
/// }
/// // Employee 1234 has left.
/// for cancelled in events.cancel(&EventSelector::reference("hr-import", "1234")).await? {
///     println!("{}: running {}", cancelled.slot, cancelled.running);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Events {
    pub(super) shared: Arc<Shared>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("topology", &self.shared.topology.name).finish_non_exhaustive()
    }
}

pub(super) struct Shared {
    pub(super) topology: Arc<Topology>,
    pub(super) routes: Routes,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) register: Arc<dyn Register>,
    pub(super) index: Arc<dyn Index>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) outage: BrokerOutage,
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
        let routes = Routes::of(&topology);
        Self {
            shared: Arc::new(Shared {
                topology,
                routes,
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
    pub(super) fn registered(&self, name: &str) -> Result<(&EventType, &TypeSpec), EventsError> {
        let types = &self.topology.types;
        match types.get_key_value(name) {
            Some((event_type, spec)) if spec.register => Ok((event_type, spec)),
            Some((event_type, _)) => Err(EventsError::Unregistered { event_type: event_type.to_string() }),
            None => Err(UnknownType::among(name, types.keys()).into()),
        }
    }

    pub(super) fn terms(&self, event_type: &EventType) -> Option<Terms> {
        self.topology.types.get(event_type).map(|spec| spec.terms(&self.topology.redis))
    }

    /// How far away an event can be due that was published for the longest delay there is.
    pub(super) fn horizon(&self) -> Duration {
        let named = self.topology.hatcheries.iter().map(|ttl| ttl.as_duration()).max().unwrap_or_default();
        self.topology.ladder.longest().max(named)
    }
}

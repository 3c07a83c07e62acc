//! The broker, the register and the topology that all calls of [`Events`] share.

use std::{fmt, sync::Arc, time::Duration};

use super::error::EventsError;
use crate::{
    domain::{
        event::Event,
        life_cycle::{LifeCycleRecord, TransitionName},
        register::{Cancelled, Subject, Terms},
        spec::{Topology, TypeSpec},
        wire::Message,
        words::{EventType, UnknownType},
    },
    outage::BrokerOutage,
    ports::{Broker, Clock, Index, Register},
    publish::{
        published::{PUBLISH_LIMIT, PublishError},
        send,
    },
    records::Records,
    routes::Routes,
    schedules::Repairer,
};

/// The waiting events of a topology: finds, cancels and moves them.
///
/// Created by [`Hatchery::events`](crate::Hatchery::events), or by [`Builder::events`](crate::Builder::events) for a program
/// that neither publishes nor works. Clones share the connections.
///
/// | events | methods |
/// | --- | --- |
/// | of one reference or id: an [`EventSelector`](super::EventSelector) | [`show`](Self::show), [`cancel`](Self::cancel), [`reschedule`](Self::reschedule), [`run_now`](Self::run_now) |
/// | that match a [`Filter`](crate::Filter) | [`search`](Self::search), [`cancel_all`](Self::cancel_all), [`reschedule_all`](Self::reschedule_all), [`run_now_all`](Self::run_now_all); these return streams |
///
/// Only events in the register are found: types with `register: off` have none. An event whose payload is not kept
/// (`keep-payload`) can be cancelled and delayed, but not run earlier.
///
/// ```no_run
/// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::EventsError> {
/// use futures_util::{StreamExt, TryStreamExt};
/// use hatchery::{Filter, State, EventSelector};
///
/// let events = hatchery.events();
/// // Events that wait for their next attempt, sorted by due time.
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Events {
    /// For `hatchery-admin`.
    #[doc(hidden)]
    pub shared: Arc<Backend>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("topology", &self.shared.topology.name).finish_non_exhaustive()
    }
}

/// A topology with its broker and its register.
pub struct Backend {
    pub topology: Arc<Topology>,
    pub(super) routes: Routes,
    pub broker: Arc<dyn Broker>,
    pub register: Arc<dyn Register>,
    pub index: Arc<dyn Index>,
    pub clock: Arc<dyn Clock>,
    pub(super) outage: BrokerOutage,
    /// The publisher of records of what people do.
    pub records: Arc<Records>,
}

impl Events {
    /// Creates it over any broker and register, for tests. Programs use [`Hatchery::events`](crate::Hatchery::events). Not part of
    /// the stable interface.
    #[must_use]
    pub fn new(
        topology: Arc<Topology>,
        broker: Arc<dyn Broker>,
        register: Arc<dyn Register>,
        index: Arc<dyn Index>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::telling(topology, broker, register, index, clock, Arc::default())
    }

    /// Waits until the records of what people have done are confirmed, for two seconds at the most. A program that ends without this
    /// call, and without [`Hatchery::close`](crate::Hatchery::close), may lose the last ones.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
    /// events.cancel(&hatchery::EventSelector::reference("hr-import", "1234")).await?;
    /// events.flush().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn flush(&self) {
        self.shared.records.flush().await;
    }

    pub(crate) fn telling(
        topology: Arc<Topology>,
        broker: Arc<dyn Broker>,
        register: Arc<dyn Register>,
        index: Arc<dyn Index>,
        clock: Arc<dyn Clock>,
        records: Arc<Records>,
    ) -> Self {
        let routes = Routes::of(&topology);
        Self {
            shared: Arc::new(Backend {
                topology,
                routes,
                broker,
                register,
                index,
                clock,
                outage: BrokerOutage::default(),
                records,
            }),
        }
    }
}

/// The methods that `hatchery-admin` calls.
impl Backend {
    /// Publishes until the broker confirms. `message` builds the message anew for each try.
    ///
    /// # Errors
    /// When the broker does not confirm within the limit of publishers.
    pub async fn confirmed(&self, message: impl Fn() -> Message) -> Result<(), PublishError> {
        send::send(&*self.broker, &self.outage, PUBLISH_LIMIT, || Some(message())).await
    }

    /// Returns the message that sends a copy to the scheduler now.
    #[must_use]
    pub fn to_scheduler(&self, copy: &Event) -> Message {
        self.routes.to_scheduler(copy, copy.early_by(self.clock.shared()))
    }

    /// Returns the publisher of the events of schedules.
    #[must_use]
    pub fn repairer(&self) -> Repairer<'_> {
        let Self { topology, routes, broker, register, clock, outage, records, .. } = self;
        Repairer { topology, routes, broker: &**broker, register: &**register, clock: &**clock, outage, records }
    }

    /// Tells what a person has done to an event, with what `fill` adds.
    pub fn tell(&self, transition: TransitionName, event: &Subject, fill: impl FnOnce(&mut LifeCycleRecord)) {
        self.records.tell_that(transition, |record| {
            record.event_type = Some(event.event_type.to_string());
            record.id = Some(event.id.clone()).filter(|id| !id.is_empty());
            record.reference = event.reference.as_ref().map(ToString::to_string);
            fill(record);
        });
    }

    /// Tells that a person has cancelled what a slot held, if it held something.
    pub(super) fn tell_cancelled(&self, event: &Subject, found: &Cancelled) {
        if found.waiting || found.running {
            self.tell(TransitionName::Cancelled, event, |record| {
                record.id = found.id.clone().or(record.id.take());
            });
        }
    }

    /// Returns the settings of a type that the register needs.
    #[must_use]
    pub fn terms(&self, event_type: &EventType) -> Option<Terms> {
        self.topology.types.get(event_type).map(|spec| spec.terms(&self.topology.redis))
    }
}

impl Backend {
    /// Returns the settings of a type, which must use the register.
    pub(super) fn registered(&self, name: &str) -> Result<(&EventType, &TypeSpec), EventsError> {
        let types = &self.topology.types;
        match types.get_key_value(name) {
            Some((event_type, spec)) if spec.register => Ok((event_type, spec)),
            Some((event_type, _)) => Err(EventsError::Unregistered { event_type: event_type.to_string() }),
            None => Err(UnknownType::among(name, types.keys()).into()),
        }
    }

    /// Returns the longest time that an event may wait in the ladder or a hatchery.
    pub(super) fn horizon(&self) -> Duration {
        let named = self.topology.hatcheries.iter().map(|ttl| ttl.as_duration()).max().unwrap_or_default();
        self.topology.ladder.longest().max(named)
    }
}

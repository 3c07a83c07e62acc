//! Publishing: reserve a version, publish, wait for the confirm, record it.
//!
//! A crash before the confirm: the publisher has heard no Ok and publishes again; if both arrive, the register knows
//! them by version or id. A crash after the confirm and before *record*: the event runs, only that older ones of its
//! reference may run before it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backon::Retryable;
use fail::fail_point;
use futures_util::{Stream, StreamExt, stream};
use jiff::Timestamp;
use tokio::{sync::Semaphore, time::Instant};
use uuid::Uuid;

use super::{
    new_event::{NewEvent, When},
    outage::{BrokerOutage, RegisterOutage, Side},
    register::Batches,
    ways::Ways,
};
use crate::{
    domain::{
        delay::Route,
        event::{self, Event},
        register::{Record, Reserve, Reserved, Slot, Stamp, Terms},
        spec::{Topology, TypeSpec},
        trouble::Trouble,
        wire::{Message, Properties, kept},
        words::{EventType, Reference, UnknownType, WordError},
    },
    ports::{Broker, BrokerError, Clock, Register, RegisterError},
};

/// How long a publisher waits for a version. Without one the event competes with nothing.
pub(crate) const VERSION_WAIT: Duration = Duration::from_millis(250);
/// How long it does not ask again after that.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long an event is tried to be published before its publish fails.
const PUBLISH_LIMIT: Duration = Duration::from_secs(30);
/// Publishes that wait for their confirm at a time, unless [`Publisher::in_flight`] says otherwise.
const IN_FLIGHT: usize = 1_000;
/// AMQP's short strings.
const SHORT: usize = 255;

/// An event that the broker has confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// Its id.
    pub id: String,
    /// Its reference was to be coalesced, but the register gave no version: it competes with nothing.
    pub unversioned: bool,
}

/// Why an event was not published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The file has no such type.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// The reference.
    #[error(transparent)]
    Reference(#[from] WordError),
    /// A text property is empty or does not fit.
    #[error("the {field} has {length} bytes; it takes 1 to {SHORT}")]
    Length {
        /// Which.
        field: &'static str,
        /// Its length in bytes.
        length: usize,
    },
    /// The payload is larger than the file allows.
    #[error("the payload has {length} bytes, more than max-payload ({limit})")]
    TooLarge {
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Its delay leads beyond the times that an event can have.
    #[error("the delay leads beyond the year 9999")]
    TooLate,
    /// The broker did not confirm it. It may have arrived all the same.
    #[error("not confirmed: {0}")]
    Broker(#[from] BrokerError),
    /// The broker did not confirm it in time. It may have arrived all the same.
    #[error("not confirmed within {} s; it may have arrived all the same", PUBLISH_LIMIT.as_secs())]
    Timeout,
}

/// Publishes events. Clones share one connection.
///
/// So many events at most ([`in_flight`](Self::in_flight)) are sent and not confirmed yet; further ones wait for their
/// turn. Whoever has more events than fit into memory uses [`publish_stream`](Self::publish_stream), which takes no
/// event before there is room for it, also while the broker is away or blocks publishers.
#[derive(Clone)]
pub struct Publisher {
    shared: Arc<Shared>,
    room: Arc<Semaphore>,
    in_flight: usize,
}

struct Shared {
    topology: Arc<Topology>,
    ways: Ways,
    broker: Arc<dyn Broker>,
    register: Batches,
    clock: Arc<dyn Clock>,
    /// Until then the register is not asked.
    away: Mutex<Option<Instant>>,
    broker_outage: BrokerOutage,
    register_outage: RegisterOutage,
}

/// Nobody has said anything for as long as a publisher waits.
fn late() -> RegisterError {
    let reason = format!("no answer within {VERSION_WAIT:?}");
    RegisterError::Unreachable { url: "its address".to_owned(), trouble: Trouble::Slow, reason }
}

/// A question, and since when it stands.
struct Asked<F> {
    at: Instant,
    answer: F,
}

/// An event on its way, and by which way.
struct Draft {
    event: Event,
    route: Route,
    due: Timestamp,
    terms: Terms,
    /// The register hears of it.
    register: bool,
    /// The largest payload that it keeps.
    keeps: Option<usize>,
}

impl Publisher {
    /// A publisher for a topology, over any broker and register.
    #[must_use]
    pub fn new(
        topology: Arc<Topology>,
        broker: Arc<dyn Broker>,
        register: &Arc<dyn Register>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let shared = Shared {
            ways: Ways::of(&topology),
            topology,
            broker,
            register: Batches::new(register),
            clock,
            away: Mutex::new(None),
            broker_outage: BrokerOutage::default(),
            register_outage: RegisterOutage::new(Side::Publisher),
        };
        Self { shared: Arc::new(shared), room: Arc::new(Semaphore::new(IN_FLIGHT)), in_flight: IN_FLIGHT }
    }

    /// How many events may be sent and not confirmed yet, at least 1; 1,000 unless said otherwise. This publisher and
    /// the clones that are made of it from now on share them.
    #[must_use]
    pub fn in_flight(self, events: usize) -> Self {
        let in_flight = events.clamp(1, Semaphore::MAX_PERMITS);
        Self { room: Arc::new(Semaphore::new(in_flight)), in_flight, ..self }
    }

    /// Publishes one event and waits for the broker's confirm. Many may be under way at a time; among events of one
    /// reference the order of these calls decides which is newer.
    ///
    /// # Errors
    /// When the event is invalid, or the broker does not confirm it. Redis is not needed: without it the event
    /// competes with nothing.
    pub fn publish(&self, event: NewEvent) -> impl Future<Output = Result<Published, PublishError>> + Send + use<> {
        let (shared, room) = (Arc::clone(&self.shared), Arc::clone(&self.room));
        let draft = shared.draft(event);
        // Asked for now and not at the first poll: the order of the calls is the order of the versions.
        let version = draft.as_ref().ok().and_then(|draft| shared.ask(draft));
        async move {
            let mut draft = draft?;
            let version = match version {
                Some(version) => shared.wait(version).await,
                None => None,
            };
            let _room = room.acquire_owned().await;
            shared.publish(&mut draft, version).await
        }
    }

    /// Publishes many events, as many at a time as may be in flight, and answers for each in their order.
    pub async fn publish_batch(&self, events: Vec<NewEvent>) -> Vec<Result<Published, PublishError>> {
        self.publish_stream(stream::iter(events)).collect().await
    }

    /// Publishes events as they come, as many at a time as may be in flight, and answers for each in their order. The
    /// next event is asked for when there is room for it, so that memory stays bounded however many there are.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::PublishError> {
    /// use futures_util::{StreamExt, TryStreamExt, stream};
    /// use hatchery::NewEvent;
    ///
    /// let employees = stream::iter(0..1_000_000);
    /// let events = employees.map(|number: u32| NewEvent::new("hr-import", "{}").reference(number.to_string()));
    /// let publisher = hatchery.publisher().in_flight(500);
    /// publisher.publish_stream(events).try_for_each(|_| async { Ok(()) }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn publish_stream(
        &self,
        events: impl Stream<Item = NewEvent>,
    ) -> impl Stream<Item = Result<Published, PublishError>> {
        events.map(|event| self.publish(event)).buffered(self.in_flight)
    }
}

impl Shared {
    fn draft(&self, new: NewEvent) -> Result<Draft, PublishError> {
        let (event_type, spec) = self.spec(&new.event_type)?;
        let reference = new.reference.as_deref().map(str::parse::<Reference>).transpose()?;
        let id = new.id.unwrap_or_else(|| Uuid::now_v7().to_string());
        for (field, text) in [
            ("id", Some(&id)),
            ("correlation id", new.correlation_id.as_ref()),
            ("content type", Some(&new.content_type)),
            ("traceparent", new.traceparent.as_ref()),
        ] {
            if let Some(length) = text.map(String::len).filter(|length| !(1..=SHORT).contains(length)) {
                return Err(PublishError::Length { field, length });
            }
        }
        if new.payload.len() > self.topology.max_payload {
            return Err(PublishError::TooLarge { length: new.payload.len(), limit: self.topology.max_payload });
        }

        let now = self.clock.now();
        let (nbf, mut delay) = match new.when {
            When::Now | When::After(Duration::ZERO) => (None, Duration::ZERO),
            When::At(time) => (Some(event::ceil_millis(time)), event::until(now, event::ceil_millis(time))),
            When::After(delay) => (Some(event::ceil_millis(event::later(now, delay))), delay),
        };
        let slot = event::slot(spec, reference.as_ref(), nbf, &id);
        if let (Slot::Immediate | Slot::First, Some(window)) = (&slot, spec.coalesce.window) {
            delay = window.as_duration();
        }
        let due = event::due(now, delay).ok_or(PublishError::TooLate)?;
        let event = Event {
            event_type: event_type.clone(),
            reference,
            created_at: now,
            nbf,
            attempts: 0,
            busy: 0,
            crashes: 0,
            reason: new.reason,
            first_failure: None,
            last_failure: None,
            stamp: Stamp { slot, version: 0, generation: 0 },
            content_type: Some(new.content_type),
            correlation_id: new.correlation_id,
            traceparent: new.traceparent,
            payload: new.payload,
            properties: Properties::default(),
            id,
        };
        let route = self.ways.after(delay);
        Ok(Draft {
            event,
            route,
            due,
            terms: spec.terms(&self.topology.redis),
            register: spec.register,
            keeps: spec.keep_payload,
        })
    }

    fn spec(&self, name: &str) -> Result<(&EventType, &TypeSpec), PublishError> {
        self.topology
            .types
            .get_key_value(name)
            .ok_or_else(|| UnknownType::among(name, self.topology.types.keys()).into())
    }

    /// Asks for a version, unless nothing competes or the register did not answer a moment ago.
    fn ask(
        &self,
        draft: &Draft,
    ) -> Option<Asked<impl Future<Output = Result<Reserved, RegisterError>> + Send + use<>>> {
        let Draft { event, due, terms, .. } = draft;
        if self.is_away() || matches!(event.stamp.slot, Slot::Event(_)) {
            return None;
        }
        let (subject, slot) = (event.subject(), event.stamp.slot.clone());
        let answer = self.register.reserve(Reserve { subject, slot, due: *due, asked_by: None, terms: *terms });
        Some(Asked { at: Instant::now(), answer })
    }

    async fn wait(&self, asked: Asked<impl Future<Output = Result<Reserved, RegisterError>>>) -> Option<i64> {
        let Asked { at: asked, answer } = asked;
        match tokio::time::timeout(VERSION_WAIT, answer).await {
            Ok(Ok(Reserved::Version(version))) => {
                self.register_outage.answered(asked);
                return Some(version);
            }
            // Nobody asked, so nobody is stale.
            Ok(Ok(Reserved::Stale)) => {}
            Ok(Err(error)) => self.went_away(asked, &error),
            Err(_) => self.went_away(asked, &late()),
        }
        None
    }

    fn is_away(&self) -> bool {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        away.is_some_and(|until| Instant::now() < until)
    }

    /// A question that was asked then had no answer: the register is not asked for a second.
    fn went_away(&self, asked: Instant, error: &RegisterError) {
        if self.register_outage.failed(asked, error) {
            *self.away.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + ASK_AGAIN);
        }
    }

    async fn publish(&self, draft: &mut Draft, version: Option<i64>) -> Result<Published, PublishError> {
        let Draft { event, route, register, .. } = draft;
        let unversioned = version.is_none() && !matches!(event.stamp.slot, Slot::Event(_));
        match version {
            Some(version) => event.stamp.version = version,
            None => event.stamp = Stamp::alone(&event.id, 0),
        }
        fail_point!("publish.reserved");
        self.send(event, *route).await?;
        fail_point!("publish.confirmed");
        if unversioned {
            self.register_outage.unversioned();
        }
        if version.is_some() || (*register && !self.is_away()) {
            self.record(draft).await;
        }
        fail_point!("publish.recorded");
        Ok(Published { id: draft.event.id.clone(), unversioned })
    }

    /// What it says is true already, and of what competes the next claim says it again: nothing waits for it to work. Until
    /// then older events of the reference may run too.
    async fn record(&self, draft: &Draft) {
        let Draft { event, terms, due, keeps, .. } = draft;
        let asked = Instant::now();
        let record = self.register.record(Record {
            subject: event.subject(),
            slot: event.stamp.slot.clone(),
            version: event.stamp.version,
            due: *due,
            reason: event.reason.clone(),
            kept: kept::of(event, *keeps),
            terms: *terms,
        });
        let error = match tokio::time::timeout(VERSION_WAIT, record).await {
            Ok(Ok(())) => {
                self.register_outage.answered(asked);
                return;
            }
            Ok(Err(error)) => error,
            Err(_) => late(),
        };
        tracing::debug!(%error, id = %event.id, event_type = %event.event_type, "not recorded");
        self.went_away(asked, &error);
    }

    /// The same event again where the connection broke: the register knows both by their id or version. A date has come
    /// nearer meanwhile.
    async fn send(&self, event: &Event, route: Route) -> Result<(), PublishError> {
        let mut first = Some(route);
        let again = || match event.nbf {
            Some(_) => self.ways.after(event.early_by(self.clock.now())),
            None => route,
        };
        send(&*self.broker, &self.broker_outage, || self.ways.by(first.take().unwrap_or_else(again), event)).await
    }
}

/// Publishes until the broker has confirmed it, for half a minute at most. The message is made anew for each try.
pub(super) async fn send(
    broker: &dyn Broker,
    outage: &BrokerOutage,
    mut message: impl FnMut() -> Message,
) -> Result<(), PublishError> {
    let sent = (|| broker.publish(message()))
        .retry(super::settle::patience())
        .when(BrokerError::is_transient)
        .notify(|error, _| outage.begins(error));
    match tokio::time::timeout(PUBLISH_LIMIT, sent).await {
        Ok(sent) => {
            sent?;
            outage.ends();
            Ok(())
        }
        Err(_) => Err(PublishError::Timeout),
    }
}

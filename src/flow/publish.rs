//! Publishing: reserve a version, publish, wait for the confirm, record it.
//!
//! A crash before the confirm: the publisher has heard no Ok and publishes again; if both arrive, the register knows
//! them by version or id. A crash after the confirm and before *record*: the event runs, only that older ones of its
//! reference may run before it.

use std::{fmt, sync::Arc, time::Duration};

use backon::Retryable;
use fail::fail_point;
use futures_util::{Stream, StreamExt, stream};
use jiff::Timestamp;
use tokio::sync::Semaphore;

use super::{
    new_event::NewEvent,
    outage::BrokerOutage,
    routes::Routes,
    versions::{Answer, Asked, VERSION_WAIT, Versions},
};
use crate::{
    domain::{
        delay::Route,
        event::{self, Event},
        register::{CopyVersion, DedupSlot, Record, Reserve, Terms},
        spec::{Topology, TypeSpec},
        time,
        wire::{Message, kept},
        words::{EventType, UnknownType, WordError},
    },
    handler::{IntoOutcome, Outcome},
    ports::{Broker, BrokerError, Clock, Register},
};

/// How long an event is tried to be published before its publish fails.
pub(super) const PUBLISH_LIMIT: Duration = Duration::from_secs(30);
/// Publishes that wait for their confirm at a time, unless [`Publisher::in_flight`] says otherwise.
const IN_FLIGHT: usize = 1_000;
/// AMQP's short strings.
const SHORT: usize = 255;

/// An event that the broker has confirmed.
///
/// From here on it is handled to the end, or waits where people can see it, or gives way to a newer one of its
/// reference, or is cancelled.
///
/// ```no_run
/// # async fn example(publisher: hatchery::Publisher) -> Result<(), hatchery::PublishError> {
/// use hatchery::NewEvent;
///
/// let published = publisher.publish(NewEvent::new("hr-import", "{}").reference("1234")).await?;
/// if published.unversioned {
///     eprintln!("{}: an older import of 1234 may run after this one", published.id);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// Its id: the caller's own, or a new UUIDv7.
    pub id: String,
    /// Its reference was to be coalesced, but the register gave no version within 250 ms (or as
    /// [`Builder::version_wait`](crate::Builder::version_wait) says): it competes with nothing, so older events of its
    /// reference run too, and may run after it.
    pub unversioned: bool,
}

/// Why an event was not published.
///
/// What is wrong with the event itself is said before anything is sent, and says the same each time. After
/// [`Broker`](Self::Broker) and [`Timeout`](Self::Timeout) publish it again: the same id makes the second one the same
/// event, where coalescing does not do so anyway.
///
/// ```no_run
/// # async fn example(publisher: hatchery::Publisher) -> Result<(), hatchery::PublishError> {
/// use hatchery::{BrokerError, NewEvent, PublishError};
///
/// match publisher.publish(NewEvent::new("hr-imprt", "{}")).await {
///     Ok(published) => println!("{}", published.id),
///     // there is no type `hr-imprt` in the file; is it `hr-import`?
///     Err(PublishError::UnknownType(error)) => println!("{error}"),
///     Err(PublishError::TooLarge { length, limit }) => println!("{length} bytes, not {limit}"),
///     // `topology apply` has not run here.
///     Err(PublishError::Broker(BrokerError::Missing { object })) => println!("no {object}"),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The file has no such type.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// The reference is empty, longer than 255 bytes, or has a control character.
    #[error(transparent)]
    Reference(#[from] WordError),
    /// The id, the correlation id, the content type or the traceparent is empty, or longer than 255 bytes.
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
    /// Its delay leads beyond the times that an event can have, the last of which is 9999-12-30T22:00:00Z.
    #[error("the delay leads beyond the year 9999")]
    TooLate,
    /// The broker did not confirm it. It may have arrived all the same.
    #[error("not confirmed: {0}")]
    Broker(BrokerError),
    /// The broker did not confirm it within 30 seconds: it is away, blocks publishers, or has too much to do. It may
    /// have arrived all the same. Or half the `dedup-retention` is over since this program asked for the event's version, which is not sent
    /// any more: the program stood still, or the broker did.
    #[error("not confirmed within {} s (half the dedup-retention, if that is less); it may have arrived all the same", PUBLISH_LIMIT.as_secs())]
    Timeout,
}

// Its text has the cause's, so it has no source: whoever shows the whole chain would show that twice.
impl From<BrokerError> for PublishError {
    fn from(error: BrokerError) -> Self {
        Self::Broker(error)
    }
}

/// Publishes events. Clones share one connection, and are cheap.
///
/// So many events at most ([`in_flight`](Self::in_flight)) are sent and not confirmed yet; further ones wait for their
/// turn. Whoever has more events than fit into memory uses [`publish_stream`](Self::publish_stream), which takes no
/// event before there is room for it, also while the broker is away or blocks publishers.
///
/// Publishing needs RabbitMQ alone. While Redis is away it is asked once a second and waited for 250 ms at most
/// ([`Builder::version_wait`](crate::Builder::version_wait)), and events are published without a version ([`Published::unversioned`]).
///
/// ```no_run
/// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::PublishError> {
/// use hatchery::{NewEvent, PublishError, Publisher};
///
/// /// A service that publishes keeps a clone.
/// struct Personnel { publisher: Publisher }
///
/// impl Personnel {
///     async fn change(&self, employee: u32, change: String) -> Result<String, PublishError> {
///         let event = NewEvent::new("hr-import", change).reference(employee.to_string());
///         Ok(self.publisher.publish(event).await?.id)
///     }
/// }
///
/// let personnel = Personnel { publisher: hatchery.publisher() };
/// personnel.change(1234, r#"{"salary": 6000}"#.to_owned()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Publisher {
    shared: Arc<Shared>,
    room: Arc<Semaphore>,
    in_flight: usize,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topology = &self.shared.topology.name;
        f.debug_struct("Publisher")
            .field("topology", topology)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

struct Shared {
    topology: Arc<Topology>,
    routes: Routes,
    broker: Arc<dyn Broker>,
    versions: Versions,
    clock: Arc<dyn Clock>,
    broker_outage: BrokerOutage,
}

/// An event on its way, and by which way.
struct Draft {
    event: Event,
    route: Route,
    due: Timestamp,
    /// When its version was asked for.
    asked: Timestamp,
    terms: Terms,
    /// The register hears of it.
    register: bool,
    /// The largest payload that it keeps.
    keeps: Option<usize>,
}

impl IntoOutcome for PublishError {
    fn into_outcome(self) -> Outcome {
        Outcome::from(self)
    }
}

impl Publisher {
    /// A publisher for a topology, over any broker and register. [`Hatchery::publisher`](crate::Hatchery::publisher) is
    /// the usual way; this one is for tests, and not part of what can be relied on.
    #[must_use]
    pub fn new(
        topology: Arc<Topology>,
        broker: Arc<dyn Broker>,
        register: &Arc<dyn Register>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::waiting(topology, broker, register, clock, VERSION_WAIT)
    }

    /// The same, with as long as it waits for a version.
    pub(crate) fn waiting(
        topology: Arc<Topology>,
        broker: Arc<dyn Broker>,
        register: &Arc<dyn Register>,
        clock: Arc<dyn Clock>,
        version_wait: Duration,
    ) -> Self {
        let shared = Shared {
            routes: Routes::of(&topology),
            topology,
            broker,
            versions: Versions::new(register, version_wait),
            clock,
            broker_outage: BrokerOutage::default(),
        };
        Self { shared: Arc::new(shared), room: Arc::new(Semaphore::new(IN_FLIGHT)), in_flight: IN_FLIGHT }
    }

    /// How many events may be sent and not confirmed yet, at least 1; 1,000 unless said otherwise. This publisher and
    /// the clones that are made of it from now on share them.
    ///
    /// More of them is faster up to what the broker takes, and more memory: each holds its payload.
    ///
    /// ```no_run
    /// # fn example(hatchery: hatchery::Hatchery) {
    /// // Documents of a megabyte: 64 MiB at most are under way.
    /// let publisher = hatchery.publisher().in_flight(64);
    /// # }
    /// ```
    #[must_use]
    pub fn in_flight(self, events: usize) -> Self {
        let in_flight = events.clamp(1, Semaphore::MAX_PERMITS);
        Self { room: Arc::new(Semaphore::new(in_flight)), in_flight, ..self }
    }

    /// Publishes one event and waits for the broker's confirm, for 30 seconds at most. Many may be under way at a time;
    /// among events of one reference the order of these calls decides which is newer.
    ///
    /// The future borrows nothing, so it can be spawned. Nothing is sent before it is polled; dropped half-way, the
    /// event may have been published or not.
    ///
    /// # Errors
    /// When the event is invalid, or the broker does not confirm it ([`PublishError`] says what to do then). Redis is
    /// not needed: without it the event competes with nothing.
    ///
    /// ```no_run
    /// # async fn example(publisher: hatchery::Publisher) -> Result<(), hatchery::PublishError> {
    /// use hatchery::NewEvent;
    ///
    /// publisher.publish(NewEvent::new("mail", r#"{"to": "ann"}"#)).await?;
    ///
    /// // Two at a time: the second one is the newer one.
    /// let earns = |salary| NewEvent::new("hr-import", format!("{{\"salary\": {salary}}}")).reference("1234");
    /// tokio::try_join!(publisher.publish(earns(5_000)), publisher.publish(earns(6_000)))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn publish(&self, event: NewEvent) -> impl Future<Output = Result<Published, PublishError>> + Send + use<> {
        let (shared, room) = (Arc::clone(&self.shared), Arc::clone(&self.room));
        let draft = shared.draft(event);
        // Asked for now and not at the first poll: the order of the calls is the order of the versions.
        let version = draft.as_ref().ok().and_then(|draft| shared.ask(draft));
        async move {
            let mut draft = draft?;
            let version = match version {
                Some(version) => shared.versions.wait(&draft.event, version).await,
                None => None,
            };
            let _room = room.acquire_owned().await;
            shared.publish(&mut draft, version).await
        }
    }

    /// Publishes many events, as many at a time as may be in flight, and answers for each in their order. One that
    /// fails holds no other up. [`publish_stream`](Self::publish_stream) does the same for more than fit into memory.
    ///
    /// ```no_run
    /// # async fn example(publisher: hatchery::Publisher) {
    /// use hatchery::NewEvent;
    ///
    /// let names = ["ann", "ben", "cem"];
    /// let mail = |name| NewEvent::new("mail", format!(r#"{{"to": "{name}"}}"#));
    /// let mails = names.iter().map(mail).collect();
    /// for (name, answer) in names.iter().zip(publisher.publish_batch(mails).await) {
    ///     match answer {
    ///         Ok(published) => println!("{name}: {}", published.id),
    ///         Err(error) => eprintln!("{name}: {error}"),
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn publish_batch(&self, events: Vec<NewEvent>) -> Vec<Result<Published, PublishError>> {
        self.publish_stream(stream::iter(events)).collect().await
    }

    /// Publishes events as they come, as many at a time as may be in flight, and answers for each in their order. The
    /// next event is asked for when there is room for it, so that memory stays bounded however many there are.
    ///
    /// It goes on as long as it is read. The methods to do so are those of `StreamExt` and `TryStreamExt` in
    /// `futures-util`.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::PublishError> {
    /// use futures_util::{StreamExt, TryStreamExt, stream};
    /// use hatchery::NewEvent;
    ///
    /// let employees = stream::iter(0..1_000_000);
    /// let events = employees.map(|number: u32| NewEvent::new("hr-import", "{}").reference(format!("{number}")));
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
        let now = self.clock.now();
        let (nbf, mut delay) = new.date(now);
        let mut event = new.into_event(event_type.clone(), nbf, now)?;
        for (field, text) in [
            ("id", Some(&event.id)),
            ("correlation id", event.correlation_id.as_ref()),
            ("content type", event.content_type.as_ref()),
            ("traceparent", event.traceparent.as_ref()),
        ] {
            if let Some(length) = text.map(String::len).filter(|length| !(1..=SHORT).contains(length)) {
                return Err(PublishError::Length { field, length });
            }
        }
        if event.payload.len() > self.topology.max_payload {
            return Err(PublishError::TooLarge { length: event.payload.len(), limit: self.topology.max_payload });
        }

        let slot = event::slot(spec, event.reference.as_ref(), nbf, &event.id);
        if let (DedupSlot::Immediate | DedupSlot::First, Some(window)) = (&slot, spec.coalesce.window) {
            delay = window.as_duration();
        }
        // To the millisecond, as its date: who names an event by when it is due names its slot.
        let due = time::due(now, delay).map(time::ceil_millis).ok_or(PublishError::TooLate)?;
        event.stamp = CopyVersion { slot, version: 0, generation: 0 };
        let route = self.routes.after(delay);
        Ok(Draft {
            event,
            route,
            due,
            asked: now,
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

    /// Asks for a version, unless nothing competes.
    fn ask(&self, draft: &Draft) -> Option<Asked<impl Future<Output = Answer> + Send + use<>>> {
        let Draft { event, due, terms, .. } = draft;
        if matches!(event.stamp.slot, DedupSlot::Event(_)) {
            return None;
        }
        let (subject, slot) = (event.subject(), event.stamp.slot.clone());
        self.versions.ask(Reserve { subject, slot, due: *due, asked_by: None, terms: *terms })
    }

    async fn publish(&self, draft: &mut Draft, version: Option<i64>) -> Result<Published, PublishError> {
        let Draft { event, route, register, asked, terms, .. } = draft;
        let unversioned = version.is_none() && !matches!(event.stamp.slot, DedupSlot::Event(_));
        match version {
            Some(version) => event.stamp.version = version,
            None => event.stamp = CopyVersion::alone(&event.id, 0),
        }
        fail_point!("publish.reserved");
        // The register forgets what was handled: a version older than that could run after a newer one. So long before the end
        // the broker has it whatever it waits for.
        let limit = version.and_then(|_| time::due(*asked, terms.dedup_retention / 2));
        self.send(event, *route, limit).await?;
        fail_point!("publish.confirmed");
        if unversioned {
            self.versions.went_without();
        }
        if version.is_some() || (*register && !self.versions.is_away()) {
            let Draft { event, terms, due, keeps, .. } = draft;
            let record = Record {
                subject: event.subject(),
                slot: event.stamp.slot.clone(),
                version: event.stamp.version,
                due: *due,
                reason: event.reason.clone(),
                kept: kept::of(event, *keeps),
                terms: *terms,
            };
            self.versions.record(record).await;
        }
        fail_point!("publish.recorded");
        Ok(Published { id: draft.event.id.clone(), unversioned })
    }

    /// The same event again where the connection broke: the register knows both by their id or version. A date has come
    /// nearer meanwhile.
    /// It is not sent after `limit`: the adapter drops what its caller no longer waits for.
    async fn send(&self, event: &Event, route: Route, limit: Option<Timestamp>) -> Result<(), PublishError> {
        let mut first = Some(route);
        let again = || match event.nbf {
            Some(_) => self.routes.after(event.early_by(self.clock.now())),
            None => route,
        };
        let within = limit.map_or(PUBLISH_LIMIT, |limit| time::until(self.clock.now(), limit).min(PUBLISH_LIMIT));
        send(&*self.broker, &self.broker_outage, within, || {
            let is_late = limit.is_some_and(|limit| self.clock.now() > limit);
            (!is_late).then(|| self.routes.by(first.take().unwrap_or_else(again), event))
        })
        .await
    }
}

/// Publishes until the broker has confirmed it, for so long at most. The message is made anew for each try; where there is none
/// it is too late.
pub(super) async fn send(
    broker: &dyn Broker,
    outage: &BrokerOutage,
    within: Duration,
    mut message: impl FnMut() -> Option<Message>,
) -> Result<(), PublishError> {
    let publish = || {
        let message = message().ok_or(PublishError::Timeout);
        async move { Ok(broker.publish(message?).await?) }
    };
    let sent = publish
        .retry(super::settle::backoff())
        .when(|error| matches!(error, PublishError::Broker(error) if error.is_transient()))
        .notify(|error, _| {
            if let PublishError::Broker(error) = error {
                outage.begins(error);
            }
        });
    match tokio::time::timeout(within, sent).await {
        Ok(sent) => {
            sent?;
            outage.ends();
            Ok(())
        }
        Err(_) => Err(PublishError::Timeout),
    }
}

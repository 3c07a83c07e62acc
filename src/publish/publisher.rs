//! Publishing: reserve a version in the register, send, wait for the broker's confirm, record the version. Events of a type are
//! sent one after the other, and many confirms are awaited at a time.
//!
//! After a crash before the confirm, the program has no result and publishes again. If both copies arrive, the register
//! recognizes them by their version or id. After a crash between the confirm and *record*, the event runs, but older events of
//! its reference may run before it.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt, future::OptionFuture, stream};
use jiff::Timestamp;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};
use tracing::{Instrument as _, Span};

use super::{
    new_event::NewEvent,
    published::{PUBLISH_LIMIT, PublishError, PublishMeters, Published},
    send::{Given, Line, confirm},
    versions::{VERSION_WAIT, Versions},
};
use crate::{
    domain::{
        delay::Route,
        event::{self, Event},
        names,
        register::{CopyVersion, DedupSlot, Reserve, Terms},
        schedule::forged::forged,
        spec::Topology,
        time,
        wire::{SHORT, kept},
        words::{EventType, UnknownType},
    },
    outage::BrokerOutage,
    ports::{Broker, BrokerError, Clock, Register},
    records::Records,
    routes::Routes,
    trace::{self, TraceContext, Traces},
};

/// The default of [`Publisher::in_flight`].
const IN_FLIGHT: usize = 1_000;

/// Publishes events. Clones are cheap and share one connection.
///
/// At most [`in_flight`](Self::in_flight) events are unconfirmed at a time; further publishes wait. For more events than fit
/// into memory, use [`publish_stream`](Self::publish_stream), which takes the next event only when there is room for it, also
/// while the broker cannot be reached or blocks publishers.
///
/// Publishing needs RabbitMQ only. While Redis cannot be reached, one publish a second tries it and waits up to 250 ms
/// ([`Builder::version_wait`](crate::Builder::version_wait)). Events are published without a version
/// ([`Published::unversioned`]).
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
    shared: Arc<PublisherInner>,
    lines: Lines,
    room: Arc<Semaphore>,
    in_flight: usize,
    traces: Traces,
}

/// The publishes that have not begun, by type, because a queue of due events has one type.
type Lines = Arc<BTreeMap<EventType, Arc<Line<Begun>>>>;

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topology = &self.shared.topology.name;
        f.debug_struct("Publisher")
            .field("topology", topology)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

struct PublisherInner {
    topology: Arc<Topology>,
    routes: Routes,
    broker: Arc<dyn Broker>,
    versions: Versions,
    clock: Arc<dyn Clock>,
    broker_outage: BrokerOutage,
    meters: PublishMeters,
    records: Arc<Records>,
    runtime: Handle,
}

/// An event on its way to the broker.
struct Draft {
    event: Event,
    route: Route,
    due: Timestamp,
    /// When its version was reserved.
    asked: Timestamp,
    terms: Terms,
    /// Whether the register records the event.
    register: bool,
    /// The largest payload that the register keeps.
    keeps: Option<usize>,
}

/// An event that was sent in its turn.
struct Begun {
    draft: Box<Draft>,
    version: Option<i64>,
    /// Whether it should have a version and has none.
    unversioned: bool,
    /// Nothing is sent after this time.
    limit: Option<Timestamp>,
    deadline: Instant,
    /// `None` if it was too late to send the event.
    given: Option<Given>,
    room: Option<OwnedSemaphorePermit>,
}

impl Publisher {
    /// Creates a publisher over any broker and register, for tests. Programs use
    /// [`Hatchery::publisher`](crate::Hatchery::publisher). Not part of the stable interface.
    #[must_use]
    pub fn new(
        topology: Arc<Topology>,
        broker: Arc<dyn Broker>,
        register: &Arc<dyn Register>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::waiting(topology, broker, register, clock, VERSION_WAIT, names::PRODUCT)
    }

    /// Creates a publisher that waits this long for a version. The records of its events, and of those of workers that share it, say that
    /// `by` tells them.
    pub(crate) fn waiting(
        topology: Arc<Topology>,
        broker: Arc<dyn Broker>,
        register: &Arc<dyn Register>,
        clock: Arc<dyn Clock>,
        version_wait: Duration,
        by: &str,
    ) -> Self {
        let shared = PublisherInner {
            routes: Routes::of(&topology),
            meters: PublishMeters::new(topology.types.keys()),
            records: Records::start(&topology, Arc::clone(&broker), by),
            topology,
            broker,
            versions: Versions::new(register, version_wait),
            clock,
            broker_outage: BrokerOutage::default(),
            runtime: Handle::current(),
        };
        let (lines, room) = (shared.lines(), Arc::new(Semaphore::new(IN_FLIGHT)));
        Self { shared: Arc::new(shared), lines, room, in_flight: IN_FLIGHT, traces: None }
    }

    /// Returns what publishes the records of events.
    pub(crate) fn records(&self) -> &Arc<Records> {
        &self.shared.records
    }

    /// Sets how many events may be unconfirmed at a time, at least 1. Default: 1,000. This publisher and its later clones
    /// share the limit.
    ///
    /// A higher limit is faster until the broker is saturated, and needs more memory, because each event holds its payload.
    ///
    /// ```no_run
    /// # fn example(hatchery: hatchery::Hatchery) {
    /// // Documents of a megabyte: at most 64 MiB are unconfirmed.
    /// let publisher = hatchery.publisher().in_flight(64);
    /// # }
    /// ```
    #[must_use]
    pub fn in_flight(self, events: usize) -> Self {
        let in_flight = events.clamp(1, Semaphore::MAX_PERMITS);
        // Lines of its own as well: where it waits for room, others do not.
        Self { lines: self.shared.lines(), room: Arc::new(Semaphore::new(in_flight)), in_flight, ..self }
    }

    /// Puts the trace of each publish into its event, unless the event has a [`traceparent`](NewEvent::traceparent) already.
    /// This publisher and its later clones do so.
    #[must_use]
    pub fn trace_context(self, traces: impl TraceContext) -> Self {
        Self { traces: Some(Arc::new(traces)), ..self }
    }

    /// Publishes one event and waits for the broker's confirm, for 30 seconds at most.
    ///
    /// Many calls may run at a time. For events of one reference, the order of the calls decides which event is newer. The
    /// future borrows nothing, so it can be spawned. Nothing is sent before it is polled. If it is dropped, the event may or may
    /// not have been published.
    ///
    /// Events of a type reach its queue in the order in which their futures were first polled: for calls of one task, also with
    /// `join_all`, that is the order of the calls. An event that is sent again, because the broker refused it or the connection
    /// broke, may come after later ones, and so may an event with another delay. Where that would do harm, wait for each confirm.
    ///
    /// # Errors
    /// If the event is invalid, or the broker does not confirm it; [`PublishError`] says what to do. A missing Redis is no
    /// error: the event is published without a version.
    ///
    /// ```no_run
    /// # async fn example(publisher: hatchery::Publisher) -> Result<(), hatchery::PublishError> {
    /// use hatchery::NewEvent;
    ///
    /// publisher.publish(NewEvent::new("mail", r#"{"to": "ann"}"#)).await?;
    ///
    /// // Two at a time. The second call has the newer event.
    /// let earns = |salary| NewEvent::new("hr-import", format!("{{\"salary\": {salary}}}")).reference("1234");
    /// tokio::try_join!(publisher.publish(earns(5_000)), publisher.publish(earns(6_000)))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn publish(&self, event: NewEvent) -> impl Future<Output = Result<Published, PublishError>> + Send + use<> {
        let (shared, lines, room) = (Arc::clone(&self.shared), Arc::clone(&self.lines), Arc::clone(&self.room));
        let mut draft = shared.draft(event);
        let span = draft.as_mut().map_or_else(|_| Span::none(), |draft| trace::publish(&self.traces, &mut draft.event));
        // Reserved now and not at the first poll, so that the order of the calls is the order of the versions.
        let version = draft.as_ref().ok().and_then(|draft| {
            let Draft { event, due, terms, .. } = &**draft;
            let slot = event.stamp.slot.clone();
            let competes = !matches!(slot, DedupSlot::Event(_));
            let reserve = || Reserve { subject: event.subject(), slot, due: *due, asked_by: None, terms: *terms };
            competes.then(reserve).and_then(|reserve| shared.versions.ask(reserve))
        });
        let publishing = async move {
            let draft = draft?;
            let (event_type, route) = (draft.event.event_type.clone(), draft.route);
            let deadline = Instant::now() + PUBLISH_LIMIT;
            let sent = Arc::clone(&shared).send(draft, version, room, deadline).in_current_span();
            let published = shared.until_recorded(lines[&event_type].in_turn(Box::pin(sent)), deadline).await;
            shared.meters.published(&event_type, published.is_ok().then_some(route));
            published
        };
        publishing.instrument(span)
    }

    /// Publishes many events, up to [`in_flight`](Self::in_flight) at a time, and returns their results in the same order. They
    /// reach their queue in this order too, as [`publish`](Self::publish) says. A failure does not affect the other events. For
    /// more events than fit into memory, use [`publish_stream`](Self::publish_stream).
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

    /// Publishes the events of a stream, up to [`in_flight`](Self::in_flight) at a time, and returns their results in the same
    /// order. They reach their queue in this order too, as [`publish`](Self::publish) says. The next event is taken when there
    /// is room for it, so memory stays bounded.
    ///
    /// Nothing is published unless the returned stream is read, for example with `StreamExt` or `TryStreamExt` of
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

impl PublisherInner {
    /// Returns the draft of an event. It is boxed, because several futures take it from one another.
    fn draft(&self, new: NewEvent) -> Result<Box<Draft>, PublishError> {
        let types = &self.topology.types;
        let known = types.get_key_value(new.event_type.as_str());
        let (event_type, spec) = known.ok_or_else(|| UnknownType::among(&new.event_type, types.keys()))?;
        let (now, ahead) = (self.clock.now(), self.clock.ahead());
        let shared = time::shared(now, ahead);
        let (nbf, mut delay) = new.date(now, shared);
        // Other programs may have set a property to nothing.
        let shortest = usize::from(new.saved.is_none());
        // By Redis's clock, by which workers judge. A clock that is a little ahead counts as right: then the date of a delayed event is
        // late, and its expiry must not come first.
        let expires = new.expiry(shared.max(time::of_redis(now, ahead)))?;
        let mut event = new.into_event(event_type.clone(), nbf, shared)?;
        event.expires = expires;
        if let Some(schedule) = forged(&event, &self.topology.schedules) {
            return Err(PublishError::IdOfSchedule(schedule.to_string()));
        }
        for (field, text) in [
            ("id", Some(&event.id)),
            ("correlation id", event.correlation_id.as_ref()),
            ("content type", event.content_type.as_ref()),
            ("traceparent", event.traceparent.as_ref()),
        ] {
            if let Some(length) = text.map(String::len).filter(|length| !(shortest..=SHORT).contains(length)) {
                return Err(PublishError::Length { field, length });
            }
        }
        if event.payload.len() > self.topology.max_payload {
            return Err(PublishError::TooLarge { length: event.payload.len(), limit: self.topology.max_payload });
        }

        let slot = event::slot(spec, event.reference.as_ref(), nbf, &event.id);
        if event.expires.is_some() && !matches!(slot, DedupSlot::Event(_)) {
            return Err(PublishError::ExpiresAndCoalesces(event_type.clone()));
        }
        if let (DedupSlot::Immediate | DedupSlot::First, Some(window)) = (&slot, spec.coalesce.window) {
            delay = window.as_duration();
        }
        // In milliseconds, like the date: the due time is also the name of the event's slot.
        let due = time::due(shared, delay).map(time::ceil_millis).ok_or(PublishError::TooLate)?;
        let due = nbf.map_or(due, |nbf| nbf.max(time::ceil_millis(shared)));
        event.stamp = CopyVersion { slot, version: 0, generation: 0 };
        let route = self.routes.after(delay);
        Ok(Box::new(Draft {
            event,
            route,
            due,
            asked: now,
            terms: spec.terms(&self.topology.redis),
            register: spec.register,
            keeps: spec.keep_payload,
        }))
    }

    fn lines(&self) -> Lines {
        let line = || Arc::new(Line::new(self.runtime.clone()));
        Arc::new(self.topology.types.keys().map(|event_type| (event_type.clone(), line())).collect())
    }

    /// Sends an event, as soon as it has its version and there is room. Only its confirm is left to wait for.
    async fn send(
        self: Arc<Self>,
        mut draft: Box<Draft>,
        version: Option<impl Future<Output = Option<i64>>>,
        room: Arc<Semaphore>,
        deadline: Instant,
    ) -> Begun {
        let version = OptionFuture::from(version).await.flatten();
        let Draft { event, route, asked, terms, .. } = &mut *draft;
        let unversioned = version.is_none() && !matches!(event.stamp.slot, DedupSlot::Event(_));
        match version {
            Some(version) => event.stamp.version = version,
            None => event.stamp = CopyVersion::uncontested(&event.id, 0),
        }
        fail_point!("publish.reserved");
        let limit = version.and_then(|_| time::due(*asked, terms.sendable()));
        // Nobody closes the semaphore.
        let room = room.acquire_owned().await.ok();
        let now = self.clock.now();
        let deadline = limit.map_or(deadline, |limit| deadline.min(Instant::now() + time::until(now, limit)));
        let is_late = limit.is_some_and(|limit| now > limit);
        // What is given one after the other reaches a queue in that order.
        let given = if is_late {
            None
        } else {
            timeout_at(deadline, self.broker.send(self.routes.by(*route, event))).await.ok()
        };
        Begun { draft, version, unversioned, limit, deadline, given, room }
    }

    async fn until_recorded(
        &self,
        begun: impl Future<Output = Option<Begun>>,
        deadline: Instant,
    ) -> Result<Published, PublishError> {
        let begun = timeout_at(deadline, begun).await.map_err(|_| PublishError::Timeout)?;
        let Begun { draft, version, unversioned, limit, deadline, given, room } = begun.ok_or(BrokerError::Closed)?;
        let Draft { event, route, due, terms, register, keeps, .. } = &*draft;
        // The delay is computed anew for each try. Nothing is sent after the limit, because the adapter drops a publish whose
        // caller is gone.
        let again = || {
            let route = event.nbf.map_or(*route, |_| self.routes.after(event.early_by(self.clock.latest())));
            limit.is_none_or(|limit| self.clock.now() <= limit).then(|| self.routes.by(route, event))
        };
        let given = given.ok_or(PublishError::Timeout)?;
        confirm(&*self.broker, &self.broker_outage, deadline, Some(given), again).await?;
        fail_point!("publish.confirmed");
        self.records.tell_published(event, *due);
        if unversioned {
            self.versions.contact.health.unversioned();
        }
        if version.is_some() || (*register && !self.versions.contact.is_away()) {
            let record = kept::record(event, *due, *keeps, *terms);
            self.versions.record(record).await;
        }
        fail_point!("publish.recorded");
        drop(room);
        Ok(Published { id: draft.event.id, unversioned })
    }
}

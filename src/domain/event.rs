//! An event: a task of one type, perhaps about one object, perhaps not to be run before some time.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;

use super::{
    message::Properties,
    register::{CopyVersion, DedupSlot, Subject},
    schedule::link::Link,
    settlement::Failed,
    spec::{Delayed, Immediate, TypeSpec},
    time,
    words::{EventType, Reference},
};

/// An event, or one copy of it, as a handler gets it ([`Run::event`](crate::Run::event)). Publishers make a
/// [`NewEvent`](crate::NewEvent).
///
/// Times are kept in milliseconds. [`properties`](Self::properties), [`stamp`](Self::stamp) and
/// [`subject`](Self::subject) are internal to hatchery and may change in any release.
///
/// ```no_run
/// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::WorkError> {
/// use hatchery::{CancellationToken, Outcome, Run};
///
/// async fn log(run: Run) -> std::io::Result<Outcome> {
///     let event = run.event;
///     let about = event.reference.as_ref().map_or("nobody", |reference| reference.as_str());
///     println!("{} {} about {about}: {} bytes", event.event_type, event.id, event.payload.len());
///     if let Some(nbf) = event.nbf {
///         println!("asked for {nbf}, accepted at {}", event.created_at);
///     }
///     if event.attempts > 0 {
///         println!("failed {} times, last: {:?}", event.attempts, event.last_failure);
///     }
///     Ok(Outcome::Done)
/// }
///
/// hatchery.worker().handle("mail", log).run(CancellationToken::new()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Event {
    /// The name of the event: a UUIDv7 unless the publisher chose one.
    pub id: String,
    /// The type, which chooses the handler.
    pub event_type: EventType,
    /// The object that the event is about.
    pub reference: Option<Reference>,
    /// The time at which the event was accepted for publishing.
    pub created_at: Timestamp,
    /// The event's date: it does not run before. `None` means at once.
    pub nbf: Option<Timestamp>,
    /// When the event expires: if it has not started by then, it does not run. A copy that is made after a start has none.
    pub expires: Option<Timestamp>,
    /// Failed attempts so far: 0 in the first run, and in the first run after a requeue.
    pub attempts: u32,
    /// How often a claim found the event's reference busy since the event last ran.
    pub busy: u32,
    /// The crashes that this copy carries over from earlier copies. With `register: off`: deaths of the worker while the
    /// event ran alone. With the register: 1 if an earlier delivery, which had no id, came back.
    pub crashes: u32,
    /// Whether a person sent the event to its queue, out of dead-letter for instance.
    pub by_hand: bool,
    /// Why the event is in its queue, for people.
    pub reason: Option<String>,
    /// The first failure, for people: an RFC 3339 time and the reason.
    pub first_failure: Option<String>,
    /// The last failure, for people: an RFC 3339 time and the reason.
    pub last_failure: Option<String>,
    /// The slot, version and generation by which the register tells this copy from others.
    pub stamp: CopyVersion,
    /// The MIME type of the payload. `None` if a foreign publisher did not set it.
    pub content_type: Option<String>,
    /// The correlation id that the caller set.
    pub correlation_id: Option<String>,
    /// The W3C trace context that the caller set.
    pub traceparent: Option<String>,
    /// The payload, any bytes. Clones share it.
    pub payload: Bytes,
    /// The properties and headers of the message that its copies keep.
    pub properties: Properties,
    /// The event's place in its schedule, if a schedule has published it.
    pub schedule: Option<Arc<Link>>,
}

impl Event {
    /// Returns the type, reference and id by which the register's calls name the event.
    #[must_use]
    pub fn subject(&self) -> Subject {
        Subject { event_type: self.event_type.clone(), reference: self.reference.clone(), id: self.id.clone() }
    }

    /// Returns the time at which this copy was due: its date, or the time of its publishing if that is later. A retry
    /// through the ladder moves the date on; a retry through a retry queue leaves it.
    ///
    /// ```
    /// use hatchery::{Run, jiff::{SignedDuration, Timestamp}};
    ///
    /// /// Whether it is too late to remind anybody.
    /// fn is_late(run: &Run) -> bool {
    ///     Timestamp::now().duration_since(run.event.due()) > SignedDuration::from_hours(24)
    /// }
    /// ```
    #[must_use]
    pub fn due(&self) -> Timestamp {
        self.nbf.map_or(self.created_at, |nbf| nbf.max(self.created_at))
    }

    /// Records a failure, as a worker does.
    pub fn fail(&mut self, failed: Failed) {
        let Failed { attempts, reason, failure } = failed;
        (self.attempts, self.reason) = (attempts, Some(reason));
        self.first_failure.get_or_insert_with(|| failure.clone());
        self.last_failure = Some(failure);
    }

    /// Reads the payload as JSON, whatever its content type.
    ///
    /// # Errors
    /// When the payload is not JSON, or is not a `T`.
    ///
    /// ```
    /// use hatchery::{Outcome, Run};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Mail { to: String }
    ///
    /// async fn send(run: Run) -> Result<Outcome, std::io::Error> {
    ///     match run.event.json() {
    ///         Ok(Mail { to }) => println!("Dear {to}"),
    ///         // Or: `Worker::handle_json`, which does this by itself.
    ///         Err(error) => return Ok(Outcome::DeadLetter { reason: error.to_string() }),
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.payload)
    }

    /// Returns how long the event must still wait, and zero when it is due. No handler gets an event that must wait. An event of a schedule
    /// waits for its position also if its `nbf` is earlier: whoever has published it cannot run an instant early. A person can, with a copy.
    #[must_use]
    pub fn early_by(&self, now: Timestamp) -> Duration {
        let position = self.schedule.as_ref().filter(|_| self.stamp.generation == 0).map(|link| link.position);
        let position = position.map(|ms| Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX));
        self.nbf.max(position).map_or(Duration::ZERO, |due| time::until(now, due))
    }

    /// Returns when the event expired, if it has by now and was not started. The copies after a start have a higher generation, or a failure
    /// of a try in place, and `crashes` are the starts that were never settled. A person who sends an event wants it to run, and so does a
    /// schedule. An event that expires must not have replaced one that does not, so an event that competes with others never expires.
    #[must_use]
    pub fn expired(&self, crashes: u32, now: Timestamp) -> Option<Timestamp> {
        let expires = self.expires.filter(|expires| *expires <= now)?;
        let has_run = self.stamp.generation > 0 || self.attempts > 0 || self.first_failure.is_some();
        let was_started = has_run || self.crashes > 0 || crashes > 0;
        let competes = !matches!(self.stamp.slot, DedupSlot::Event(_));
        (!was_started && !competes && !self.by_hand && self.schedule.is_none()).then_some(expires)
    }
}

/// Returns the slot that a new event of this type takes, which tells what it competes with.
#[must_use]
pub fn slot(spec: &TypeSpec, reference: Option<&Reference>, nbf: Option<Timestamp>, id: &str) -> DedupSlot {
    let coalesce = spec.coalesce;
    match (reference, nbf) {
        _ if !spec.register => DedupSlot::Event(id.to_owned()),
        (Some(_), None) if coalesce.immediate == Immediate::Latest => DedupSlot::Immediate,
        (Some(_), None) if coalesce.immediate == Immediate::First => DedupSlot::First,
        (Some(_), Some(_)) if coalesce.delayed == Delayed::Latest => DedupSlot::Dated,
        (Some(_), Some(nbf)) if coalesce.delayed == Delayed::EachTime => DedupSlot::DatedAt(nbf.as_millisecond()),
        _ => DedupSlot::Event(id.to_owned()),
    }
}

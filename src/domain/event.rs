//! An event: one thing to do, for one type, about one object, not before some time.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use super::{
    message::Properties,
    register::{CopyVersion, DedupSlot, Subject},
    settlement::Failed,
    spec::{Delayed, Immediate, TypeSpec},
    time,
    words::{EventType, Reference},
};

/// An event, or one copy of it, as a handler gets it ([`Run::event`](crate::Run::event)). Publishers make a
/// [`NewEvent`](crate::NewEvent).
///
/// Times are kept in milliseconds. [`properties`](Self::properties) and what concerns the register
/// ([`stamp`](Self::stamp), [`subject`](Self::subject)) are hatchery's own and not part of what can be relied on.
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
    /// Names one event; UUIDv7 unless the publisher chose its own.
    pub id: String,
    /// Which handler.
    pub event_type: EventType,
    /// The object that it is about.
    pub reference: Option<Reference>,
    /// When it was accepted for publishing.
    pub created_at: Timestamp,
    /// Not before this time; absent means now.
    pub nbf: Option<Timestamp>,
    /// Failed attempts so far: 0 in the first run, and in the first one after a requeue.
    pub attempts: u32,
    /// How often it found its reference busy since it last ran.
    pub busy: u32,
    /// Deaths of its worker that nobody else counts. With `register: off`: while it ran alone, before its delivery was last
    /// given back. With the register: 1 for the return of a delivery that had no id.
    pub crashes: u32,
    /// A person has sent it to its queue, out of dead-letter for instance.
    pub by_hand: bool,
    /// Why it is in the queue, for people.
    pub reason: Option<String>,
    /// When it failed first and how, for people: an RFC 3339 time and the reason.
    pub first_failure: Option<String>,
    /// The same of the last time.
    pub last_failure: Option<String>,
    /// What tells this copy from others, for the register.
    pub stamp: CopyVersion,
    /// MIME type of the payload; absent where a foreign publisher did not say.
    pub content_type: Option<String>,
    /// The caller's own.
    pub correlation_id: Option<String>,
    /// W3C trace context, the caller's own.
    pub traceparent: Option<String>,
    /// Any bytes, which clones share.
    pub payload: Bytes,
    /// Everything else that the message carried, for its copies.
    pub properties: Properties,
}

impl Event {
    /// Whom the register's calls are about.
    #[must_use]
    pub fn subject(&self) -> Subject {
        Subject { event_type: self.event_type.clone(), reference: self.reference.clone(), id: self.id.clone() }
    }

    /// When this copy was due: at its date, and not before it was accepted. Retries move the date on where they go by
    /// way of the ladder, and leave it where they wait in a retry queue.
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

    /// Notes a failure, as a worker does.
    pub fn fail(&mut self, failed: Failed) {
        let Failed { attempts, reason, failure } = failed;
        (self.attempts, self.reason) = (attempts, Some(reason));
        self.first_failure.get_or_insert_with(|| failure.clone());
        self.last_failure = Some(failure);
    }

    /// The payload, read as JSON. The content type is not looked at.
    ///
    /// # Errors
    /// When it is no JSON, or of another shape.
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

    /// How long it must still wait; nothing when it is due. No handler gets one that must.
    #[must_use]
    pub fn early_by(&self, now: Timestamp) -> Duration {
        self.nbf.map_or(Duration::ZERO, |nbf| time::until(now, nbf))
    }
}

/// What an event of this type competes with, given its date.
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

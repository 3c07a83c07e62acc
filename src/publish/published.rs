//! The answer to a publish: [`Published`], or a [`PublishError`]; and the metrics that count the answers.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use metrics::{Counter, counter};

use crate::{
    domain::{
        delay::Route,
        wire::SHORT,
        words::{EventType, UnknownType, WordError},
    },
    handler::{IntoOutcome, Outcome},
    meter::{self, PUBLISH_FAILURES, PUBLISHED},
    ports::BrokerError,
};

/// How long a publish is tried before it fails.
pub(crate) const PUBLISH_LIMIT: Duration = Duration::from_secs(30);

/// An event that the broker has confirmed.
///
/// From here on the event is not lost: it runs to an outcome, waits in a queue where people can see it, is replaced by a newer
/// event of its reference, is cancelled, or expires as its publisher asked.
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
    /// The event's id: the caller's own, or a new UUIDv7.
    pub id: String,
    /// True if the event should coalesce, but the register gave no version in time
    /// ([`Builder::version_wait`](crate::Builder::version_wait), 250 ms by default). Older events of its reference then run as
    /// well, and may run after it.
    pub unversioned: bool,
}

/// Why an event was not published.
///
/// An invalid event is refused before anything is sent, and publishing it again is of no use. After
/// [`Broker`](Self::Broker) and [`Timeout`](Self::Timeout), publish the event again: with the same id, or if its type
/// coalesces, both copies count as one event.
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
        /// The name of the property.
        field: &'static str,
        /// Its length in bytes.
        length: usize,
    },
    /// The id is that of an event of a schedule, which could then not run.
    #[error("the id is that of an event of the schedule `{0}`; choose another one")]
    IdOfSchedule(String),
    /// The payload is larger than the file allows.
    #[error("the payload has {length} bytes, more than max-payload ({limit})")]
    TooLarge {
        /// Its length in bytes.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The event would expire before it is due, so it could never start.
    #[error("the event would expire at {expires:.3}, and is not due before {due:.3}")]
    ExpiresBeforeDue {
        /// When it would expire.
        expires: Timestamp,
        /// When it is due.
        due: Timestamp,
    },
    /// The event would expire, and coalesces: it could replace an event that does not expire, and then neither would run.
    #[error(
        "an event of `{0}` with this reference coalesces, and an event that coalesces cannot expire: it could replace one that does not"
    )]
    ExpiresAndCoalesces(EventType),
    /// The event's time would be after the latest possible one, 9999-12-30T22:00:00Z.
    #[error("the delay or the expiry leads beyond the year 9999")]
    TooLate,
    /// The broker did not confirm the event. It may have arrived.
    #[error("not confirmed: {0}")]
    Broker(BrokerError),
    /// The broker did not confirm the event within 30 seconds, because it cannot be reached, blocks publishers, or is
    /// overloaded. The event may have arrived.
    ///
    /// Also returned if half the `dedup-retention` has passed since the event's version was reserved, because the register may
    /// forget it soon.
    #[error("not confirmed within {} s (half the dedup-retention, if that is less); it may have arrived all the same", PUBLISH_LIMIT.as_secs())]
    Timeout,
}

// The text includes the cause, so there is no source: a program that prints the chain would print the cause twice.
impl From<BrokerError> for PublishError {
    fn from(error: BrokerError) -> Self {
        Self::Broker(error)
    }
}

impl IntoOutcome for PublishError {
    fn into_outcome(self) -> Outcome {
        Outcome::from(self)
    }
}

/// The metrics of a publisher, by type.
pub(crate) struct PublishMeters(BTreeMap<EventType, OfType>);

struct OfType {
    now: Counter,
    hatchery: Counter,
    ladder: Counter,
    failures: Counter,
}

impl PublishMeters {
    pub(crate) fn new<'a>(types: impl Iterator<Item = &'a EventType>) -> Self {
        meter::describe();
        let of_type = |event_type: &EventType| {
            let name = event_type.as_str().to_owned();
            let route = |route: &'static str| counter!(PUBLISHED, "type" => name.clone(), "route" => route);
            let failures = counter!(PUBLISH_FAILURES, "type" => name.clone());
            OfType { now: route("now"), hatchery: route("hatchery"), ladder: route("ladder"), failures }
        };
        Self(types.map(|event_type| (event_type.clone(), of_type(event_type))).collect())
    }

    /// Counts a publish. `route` is `None` if it failed.
    pub(crate) fn published(&self, event_type: &EventType, route: Option<Route>) {
        let Some(meters) = self.0.get(event_type) else { return };
        let counter = match route {
            Some(Route::Now) => &meters.now,
            Some(Route::Hatchery(_)) => &meters.hatchery,
            Some(Route::Ladder(..)) => &meters.ladder,
            None => &meters.failures,
        };
        counter.increment(1);
    }
}

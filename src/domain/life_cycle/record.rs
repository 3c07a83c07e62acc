//! The record of a transition: small JSON on the stream of the life of events, without the payload.

use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::key::Told;
use crate::domain::{
    event::Event,
    reason::cut_reason,
    time,
    transition::{Then, Transition},
};

/// A transition of an event, as the stream `<topology>.life-cycle` tells it: a JSON object without the payload.
///
/// A field is absent where it says nothing. A newer version may have more fields, which are in [`more`](Self::more), and more
/// transitions: so both are read, and written again as they were.
///
/// ```
/// use hatchery::LifeCycleRecord;
///
/// let text = r#"{"at":"2026-06-01T09:00:00.123Z","transition":"failed","type":"mail","id":"a1","attempt":2}"#;
/// let record = LifeCycleRecord::parse(text.as_bytes())?;
/// assert_eq!((record.transition.as_str(), record.attempt), ("failed", Some(2)));
/// assert_eq!((record.routing_key(), record.filter_value()), ("mail.failed".to_owned(), "a1"));
/// # Ok::<(), hatchery::serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    feature = "internals",
    derive(schemars::JsonSchema),
    schemars(
        title = "a record on the stream of the life of events",
        description = "A transition of an event, without the payload. A field is absent where it says nothing. A newer version may have more fields and \
                       transitions."
    )
)]
#[non_exhaustive]
pub struct LifeCycleRecord {
    /// When it happened, by the clock of the program that tells it: RFC 3339, milliseconds, UTC.
    #[serde(serialize_with = "millis")]
    #[cfg_attr(feature = "internals", schemars(with = "String", extend("format" = "date-time")))]
    pub at: Timestamp,
    /// The transition, a word. A newer version may have others.
    #[cfg_attr(feature = "internals", schemars(with = "String"))]
    pub transition: TransitionName,
    /// The type of the event. Absent if the transition is of all types, or of a source or a schedule.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none", default)]
    pub event_type: Option<String>,
    /// The id of the event. Absent if the transition is of no single event.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    /// The reference of the event, if it has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<String>,
    /// The attempt that has ended or starts, from 1.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub attempt: Option<u32>,
    /// The type's `max-attempts`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_attempts: Option<u32>,
    /// What follows: `retry`, `in-place` or `block` after a failure, `dead-letter` or `discard` after an expiry.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub then: Option<String>,
    /// When the event runs or runs again, or when a pause ends: RFC 3339, milliseconds, UTC.
    #[serde(serialize_with = "millis_if_any", skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "internals", schemars(with = "Option<String>", extend("format" = "date-time")))]
    pub due: Option<Timestamp>,
    /// Why, in one line of at most 1,000 bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// How long the run took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub took: Option<u64>,
    /// What a pause or a breaker is of: `type mail`, `source hr`, `schedule nightly`, or `everything`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub of: Option<String>,
    /// The program and its host, as `mailer @ worker-7`. It names no person.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub by: Option<String>,
    /// The id of the event's trace: 32 hexadecimal digits of its `traceparent`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace: Option<String>,
    /// The fields that this version does not know.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

impl LifeCycleRecord {
    /// Returns the record of what has happened to an event, as a worker tells it.
    #[must_use]
    pub fn of(event: &Event, transition: &Transition, at: Timestamp, by: Option<&str>) -> Self {
        let started = event.attempts.saturating_add(1);
        let base = Self::new(event, TransitionName::of(transition), at, by);
        let took = |took: &Duration| Some(whole_millis(*took));
        match transition {
            Transition::Started => Self { attempt: Some(started), ..base },
            Transition::Done { took: ran } => Self { attempt: Some(started), took: took(ran), ..base },
            Transition::Cancelled { took: ran } => Self { took: took(ran), ..base },
            Transition::Failed { attempt, max_attempts, error, took: ran, then } => {
                let (word, after) = match then {
                    Then::Retry { after } => ("retry", *after),
                    Then::InPlace { after, .. } => ("in-place", *after),
                    Then::Block { after } => ("block", *after),
                };
                Self {
                    attempt: Some(*attempt),
                    // `block` tries without end.
                    max_attempts: (!matches!(then, Then::Block { .. })).then_some(*max_attempts),
                    then: Some(word.to_owned()),
                    due: Some(time::later(at, after)),
                    reason: Some(short(error)),
                    took: took(ran),
                    ..base
                }
            }
            Transition::Discarded { reason, took: ran } | Transition::Dropped { reason, took: ran } => {
                Self { attempt: Some(started), reason: Some(short(reason)), took: took(ran), ..base }
            }
            Transition::Requeued { at: due, reason, took: ran } => {
                Self { due: Some(*due), reason: Some(short(reason)), took: took(ran), ..base }
            }
            Transition::Expired { at: expired, dead_lettered } => {
                let then = if *dead_lettered { "dead-letter" } else { "discard" };
                let reason = format!("expired at {}, before it started", time::millis_text(*expired));
                Self { then: Some(then.to_owned()), reason: Some(reason), ..base }
            }
            // Without a run it was not this attempt that ended.
            Transition::DeadLettered { reason, took: ran } => Self {
                attempt: ran.map(|_| started),
                reason: Some(short(reason)),
                took: ran.as_ref().and_then(took),
                ..base
            },
            Transition::PutOff | Transition::Replaced | Transition::LeaseLost => base,
        }
    }

    /// Returns the record of an event that the broker has confirmed.
    #[must_use]
    pub fn published(event: &Event, due: Timestamp, at: Timestamp, by: Option<&str>) -> Self {
        Self { due: Some(due), ..Self::new(event, TransitionName::Published, at, by) }
    }

    /// Returns the record of an event without what only some transitions have.
    fn new(event: &Event, transition: TransitionName, at: Timestamp, by: Option<&str>) -> Self {
        Self {
            event_type: Some(event.event_type.to_string()),
            id: Some(event.id.clone()),
            reference: event.reference.as_ref().map(|reference| reference.as_str().to_owned()),
            trace: event.traceparent.as_deref().and_then(trace_id).map(str::to_owned),
            ..Self::bare(transition, at, by)
        }
    }

    /// Returns a record that says nothing but what has happened, and when.
    pub(crate) fn bare(transition: TransitionName, at: Timestamp, by: Option<&str>) -> Self {
        Self {
            at,
            transition,
            event_type: None,
            id: None,
            reference: None,
            attempt: None,
            max_attempts: None,
            then: None,
            due: None,
            reason: None,
            took: None,
            of: None,
            by: by.map(str::to_owned),
            trace: None,
            more: BTreeMap::new(),
        }
    }

    /// Tells whether the record is of an event, and not of a pause or a breaker.
    #[must_use]
    pub const fn is_of_an_event(&self) -> bool {
        self.id.is_some() || self.reference.is_some()
    }

    /// Reads the records of a message: each is a line of its body.
    ///
    /// # Errors
    /// For each line that is no record, as [`parse`](Self::parse).
    pub fn parse_all(body: &[u8]) -> impl Iterator<Item = serde_json::Result<Self>> {
        body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(Self::parse)
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When the text is no JSON object, or has no time or no transition.
    pub fn parse(body: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
    }

    /// Returns the record as JSON in one line.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        // A map of JSON values and texts always has a form in JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns the routing key, `<type>.<transition>`. The first word is empty if the record has no type.
    #[must_use]
    pub fn routing_key(&self) -> String {
        format!("{}.{}", self.event_type.as_deref().unwrap_or_default(), self.transition)
    }

    /// Returns the value that the broker filters by (`x-stream-filter-value`): the reference, else the id. Empty without both.
    #[must_use]
    pub fn filter_value(&self) -> &str {
        self.reference.as_deref().or(self.id.as_deref()).unwrap_or_default()
    }
}

impl Told {
    /// Tells whether the stream is told this transition.
    #[must_use]
    pub fn takes(self, transition: &TransitionName) -> bool {
        match self {
            Self::All => true,
            Self::Failures => transition.is_of_failures(),
            Self::Off => false,
        }
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident $word:literal $failures:literal;)+) => {
        /// The name of a transition on the stream `<topology>.life-cycle`. It displays as its word.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum TransitionName {
            $($(#[$doc])* $name,)+
            /// A word that this version does not know.
            Other(String),
        }

        impl TransitionName {
            /// All names that this version knows.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Returns the word.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => $word,)+
                    Self::Other(word) => word,
                }
            }

            /// Tells whether `events: failures` tells it too. A word that this version does not know is told.
            #[must_use]
            pub const fn is_of_failures(&self) -> bool {
                match self {
                    $(Self::$name => $failures,)+
                    Self::Other(_) => true,
                }
            }
        }

        impl From<String> for TransitionName {
            fn from(word: String) -> Self {
                match word.as_str() {
                    $($word => Self::$name,)+
                    _ => Self::Other(word),
                }
            }
        }
    };
}

names! {
    /// The broker has confirmed the event.
    Published "published" false;
    /// The handler starts.
    Started "started" false;
    /// The handler has handled the event to its end.
    Done "done" false;
    /// The handler has ended the event by a business rule.
    Discarded "discarded" true;
    /// A person has cancelled the event; with `took`, the run that this has ended.
    Cancelled "cancelled" true;
    /// A run has failed, and the event will run again.
    Failed "failed" true;
    /// A run has failed, and the event is gone (`on-failure: drop`).
    Dropped "dropped" true;
    /// The handler asked to run the event again at a later date.
    Requeued "requeued" false;
    /// The worker did not start the event, and tries it again within seconds.
    PutOff "put-off" false;
    /// A newer event of its reference has replaced it.
    Replaced "replaced" false;
    /// The event has expired before it started.
    Expired "expired" true;
    /// The event is in dead-letter.
    DeadLettered "dead-lettered" true;
    /// The lease has ended before the run did.
    LeaseLost "lease-lost" true;
    /// A person has moved the event to another date.
    Rescheduled "rescheduled" true;
    /// A person has sent the event to its queue before its date.
    RunNow "run-now" true;
    /// A person has sent a dead letter to its queue again.
    Replayed "replayed" true;
    /// A person has removed a dead letter.
    LetterDiscarded "letter-discarded" true;
    /// A person or the file has paused a type, a source, a schedule or all.
    Paused "paused" true;
    /// A pause has ended.
    Resumed "resumed" true;
    /// Too many errors have opened the breaker of a type.
    BreakerOpened "breaker-opened" true;
    /// The breaker of a type is closed again.
    BreakerClosed "breaker-closed" true;
}

impl TransitionName {
    /// Returns the name of a transition that a worker tells.
    pub(crate) fn of(transition: &Transition) -> Self {
        match transition {
            Transition::Started => Self::Started,
            Transition::Done { .. } => Self::Done,
            Transition::Discarded { .. } => Self::Discarded,
            Transition::Cancelled { .. } => Self::Cancelled,
            Transition::Failed { .. } => Self::Failed,
            Transition::Dropped { .. } => Self::Dropped,
            Transition::Requeued { .. } => Self::Requeued,
            Transition::PutOff => Self::PutOff,
            Transition::Replaced => Self::Replaced,
            Transition::Expired { .. } => Self::Expired,
            Transition::DeadLettered { .. } => Self::DeadLettered,
            Transition::LeaseLost => Self::LeaseLost,
        }
    }
}

impl fmt::Display for TransitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for TransitionName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for TransitionName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

fn millis<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time::millis_text(*at))
}

#[allow(clippy::ref_option, reason = "serde passes a reference to the field")]
fn millis_if_any<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    at.map(time::millis_text).serialize(serializer)
}

fn whole_millis(took: Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

fn short(reason: &str) -> String {
    cut_reason(reason).to_owned()
}

/// Returns the trace's id of a W3C `traceparent` (`00-<trace>-<parent>-<flags>`). A stranger may have written the text.
fn trace_id(traceparent: &str) -> Option<&str> {
    let id = traceparent.split('-').nth(1)?;
    let is_hex = id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (id.len() == 32 && is_hex && id.bytes().any(|byte| byte != b'0')).then_some(id)
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;

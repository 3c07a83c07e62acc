//! The history of events, from the stream that records it.

use std::{borrow::Cow, collections::BTreeSet, time::Duration};

use futures_util::{Stream, TryStreamExt as _};
use hatchery::{BrokerError, EventType, LifeCycleReader, LifeCycleRecord, Topology, internals::life_cycle::Told};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use crate::location::KnownEvent;

/// How long the records of an answer may take. Without a filter of the broker every record is read.
const LONGEST: Duration = Duration::from_secs(20);
/// How many records of what is asked for an answer has at most, and of the pauses and breakers beside.
const MOST: usize = 1_000;

/// Whose records a trace has.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Of the event with this id.
    pub id: Option<String>,
    /// Of the events about this object.
    pub reference: Option<String>,
    /// Of this type.
    pub event_type: Option<String>,
    /// Since this time.
    pub since: Option<Timestamp>,
    /// Whether the trace of an event has the pauses and breakers that may concern it.
    pub others: bool,
}

/// The records of a trace.
#[derive(Debug, Default)]
pub struct Traced {
    /// The first records.
    pub records: Vec<LifeCycleRecord>,
    /// When the oldest record of the stream was told.
    pub oldest: Option<Timestamp>,
    /// Whether there may be more records.
    pub more: bool,
}

/// The history of events.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// The records, in the order in which the broker learned of them.
    pub records: Vec<LifeCycleRecord>,
    /// Whether there may be more records than these.
    pub more: bool,
    /// The events as Redis knows them now. Empty if only a type was asked for.
    pub now: Vec<KnownEvent>,
    /// When the oldest record of the stream was told; `null` if the stream is empty.
    #[schemars(with = "Option<String>")]
    pub oldest: Option<Timestamp>,
    /// `all` or `failures`: what the stream is told.
    pub events: Cow<'static, str>,
    /// How long the stream keeps records.
    pub keep: Option<String>,
}

/// The topology has no stream that could be read.
#[derive(Debug, thiserror::Error)]
#[error("the file has `life-cycle: off`, so nothing records what happens to events")]
pub struct NotRecorded;

/// Returns what the stream is told: `all` or `failures`.
///
/// # Errors
/// If the topology has no stream.
pub const fn recorded(topology: &Topology) -> Result<&'static str, NotRecorded> {
    match topology.life_cycle.events {
        Told::All => Ok("all"),
        Told::Failures => Ok("failures"),
        Told::Off => Err(NotRecorded),
    }
}

impl Trace {
    /// Whether a whole type is asked for.
    #[must_use]
    pub const fn is_of_type(&self) -> bool {
        self.id.is_none() && self.reference.is_none()
    }

    /// Returns the types of which Redis may know the events: each, because an id does not tell its type.
    pub fn types<'t>(&self, topology: &'t Topology) -> impl Iterator<Item = &'t EventType> {
        let is_asked = |name: &str| !self.is_of_type() && self.event_type.as_deref().is_none_or(|of| of == name);
        let of_types = topology.types.iter().filter(move |(name, spec)| spec.register && is_asked(name.as_str()));
        of_types.map(|(name, _)| name)
    }

    /// Asks by the reference too, if the events that Redis knows by the id have one: by it the broker finds their records at once.
    #[must_use]
    pub fn with_known(self, references: impl IntoIterator<Item = Option<String>>) -> Self {
        let mut references: BTreeSet<_> = references.into_iter().chain(self.reference.clone().map(Some)).collect();
        // Events of one id in two types may have two references.
        let reference = if references.len() == 1 { references.pop_first().flatten() } else { None };
        Self { reference, ..self }
    }

    /// Returns the question to the stream.
    #[must_use]
    pub fn question(&self, mut reader: LifeCycleReader) -> LifeCycleReader {
        if let Some(since) = self.since {
            reader = reader.since(since);
        }
        if let Some(event_type) = &self.event_type {
            reader = reader.event_type(event_type);
        }
        if let Some(reference) = &self.reference {
            reader = reader.reference(reference);
        }
        if let Some(id) = &self.id {
            reader = reader.id(id);
        }
        reader
    }

    /// Whether a record is of the type that is asked for, or of everything.
    #[must_use]
    pub fn has_type(&self, record: &LifeCycleRecord) -> bool {
        match (&self.event_type, &record.event_type) {
            (None, _) => true,
            (Some(asked), Some(has)) => asked == has,
            (Some(_), None) => record.of.as_deref() == Some("everything"),
        }
    }

    /// Whether a record belongs to the trace. What concerns a type as a whole belongs to the trace of a type alone.
    fn has(&self, record: &LifeCycleRecord) -> bool {
        self.has_type(record) && (record.is_of_an_event() || self.is_of_type() || self.others)
    }

    /// Reads the first records.
    ///
    /// # Errors
    /// When the broker is away, has no such stream, or refuses to read it.
    pub async fn read(&self, reader: LifeCycleReader) -> Result<Traced, BrokerError> {
        let reader = self.question(reader);
        let oldest = reader.oldest().await?.map(|record| record.at);
        self.first(oldest, Box::pin(reader.read())).await
    }

    pub(crate) async fn first(
        &self,
        oldest: Option<Timestamp>,
        mut reading: impl Stream<Item = Result<LifeCycleRecord, BrokerError>> + Unpin,
    ) -> Result<Traced, BrokerError> {
        let (mut records, until) = (Vec::new(), Instant::now() + LONGEST);
        // Pauses and breakers of other types must not keep the records of an event out.
        let (mut asked, mut others, mut are_left_out) = (0, 0, false);
        let more = loop {
            let Ok(read) = timeout_at(until, reading.try_next()).await else { break true };
            let Some(record) = read? else { break are_left_out };
            if !self.has(&record) {
                continue;
            }
            let is_asked = self.is_of_type() || record.is_of_an_event();
            let read = if is_asked { &mut asked } else { &mut others };
            match *read {
                MOST if is_asked => break true,
                MOST => are_left_out = true,
                _ => {
                    *read += 1;
                    records.push(record);
                }
            }
        };
        Ok(Traced { records, oldest, more })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn pauses_of_other_types_keep_no_record_of_an_event_out() {
        let told = |json: &str| Ok(LifeCycleRecord::parse(json.as_bytes()).expect("a record"));
        let pause = r#"{"at":"2026-06-01T09:00:00Z","transition":"paused","type":"pay","of":"pay"}"#;
        let failure = r#"{"at":"2026-06-01T09:01:00Z","transition":"failed","type":"mail","id":"a"}"#;
        let records: Vec<_> = (0..=MOST).map(|_| told(pause)).chain([told(failure)]).collect();
        let trace = Trace { id: Some("a".to_owned()), others: true, ..Trace::default() };
        let traced = trace.first(None, stream::iter(records)).await.expect("records");
        assert!(traced.more);
        assert_eq!(traced.records.last().and_then(|record| record.id.as_deref()), Some("a"));
    }
}

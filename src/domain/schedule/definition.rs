//! The definition of a schedule: what it publishes, and by which rule.

use bytes::Bytes;
use xxhash_rust::xxh3::Xxh3;

use super::{link::Link, rule::Rule};
use crate::domain::words::{EventType, Reference, Word};

/// One schedule of the file: the events that it publishes, and its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The schedule's name.
    pub name: Word,
    /// The type of its events.
    pub event_type: EventType,
    /// The reference of its events.
    pub reference: Option<Reference>,
    /// The payload of its events, a JSON text.
    pub payload: Bytes,
    /// When its events run.
    pub rule: Rule,
    /// The reason why the file pauses the schedule; empty if it gives none. Workers follow the stream with the switches, not this.
    pub paused: Option<String>,
}

impl Definition {
    /// Returns a short text that is another one for each other definition of the schedule. A pause changes no definition.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Xxh3::new();
        let rule = serde_json::to_string(&self.rule.words()).unwrap_or_default();
        let reference = self.reference.as_ref().map_or("", Reference::as_str);
        for part in [self.event_type.as_str(), reference, &rule] {
            hash.update(part.as_bytes());
            // No part contains it.
            hash.update(&[0]);
        }
        hash.update(&self.payload);
        format!("{:016x}", hash.digest())
    }

    /// Returns the place of an event in this schedule, as its message carries it.
    #[must_use]
    pub fn link(&self, position: i64) -> Link {
        Link { schedule: self.name.clone(), digest: self.digest(), position, rule: self.rule.clone(), is_extra: false }
    }
}

//! The index: for people, where each waiting event is, when it is due, how often it failed and why.
//!
//! The calls of the protocol update it in passing, so it may be wrong after Redis has lost data. Nothing is decided
//! from it.

#[cfg(any(test, feature = "internals", feature = "testing"))]
pub mod shard;

use jiff::Timestamp;

use super::{DedupSlot, Note, Subject, state::SlotState};
use crate::domain::words::{EventType, Reference};

/// The entry of one event that waits, runs, or was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The event.
    pub subject: Subject,
    /// The event's slot.
    pub slot: DedupSlot,
    /// The time at which the latest copy is due.
    pub due: Timestamp,
    /// Where the latest copy is, how often the event failed, and why.
    pub note: Note,
}

impl Entry {
    /// Tells whether the event has this reference and competes with no other.
    #[must_use]
    pub fn is_uncontested_of(&self, reference: &Reference) -> bool {
        matches!(self.slot, DedupSlot::Event(_)) && self.subject.reference.as_ref() == Some(reference)
    }
}

/// The state of a slot and its entry in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The slot.
    pub slot: DedupSlot,
    /// The state that decides about the slot's copies. It is all zero if no call has written the slot yet.
    pub state: SlotState,
    /// Whether a run of the slot holds the lease of the slot's home. The run may have been cancelled since. `None` in a
    /// list, which reads no leases.
    pub leased: Option<bool>,
    /// The entry in the index. `None` if the event is handled or cancelled, or if the entry was lost.
    pub entry: Option<Entry>,
}

/// A search for events of a type, in the order of their due times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Find {
    /// The type of the events.
    pub event_type: EventType,
    /// Only events that are due at this time or later.
    pub due_from: Option<Timestamp>,
    /// Only events that are due before this time.
    pub due_before: Option<Timestamp>,
    /// Only events of this reference that compete with no other. Their slots are not stored with the reference. `None`
    /// means all events.
    pub uncontested_of: Option<Reference>,
    /// The end of the page before, from [`Found::next`]. `None` for the first page.
    pub after: Option<Cursor>,
    /// The most events to return; at least 1.
    pub limit: usize,
}

impl Find {
    /// Returns a search for the first events of a type.
    #[must_use]
    pub const fn first(event_type: EventType, limit: usize) -> Self {
        Self { event_type, due_from: None, due_before: None, uncontested_of: None, after: None, limit }
    }
}

/// The end of a page: for each shard, the last event of it that was returned. An event that stays is seen once. An
/// event that comes or goes between two pages may be seen or missed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub Vec<Option<IndexPosition>>);

/// The place of an event in a shard's index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexPosition {
    /// The time at which the event is due, in ms.
    pub due: i64,
    /// The event's name in the index.
    pub member: String,
}

/// A page of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The events in the order of their due times. Each has an entry.
    pub events: Vec<Shown>,
    /// The end of this page, if more events may follow.
    pub next: Option<Cursor>,
}

/// How many events of a type the index has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeCounts {
    /// Events that are due: they wait for a worker, run, or were given up.
    pub due: u64,
    /// Events that are not due yet, retries included.
    pub delayed: u64,
    /// The due time of the next of these.
    pub next_due: Option<Timestamp>,
}

impl TypeCounts {
    /// Adds the counts of another shard.
    pub fn add(&mut self, other: &Self) {
        self.due += other.due;
        self.delayed += other.delayed;
        self.next_due = self.next_due.into_iter().chain(other.next_due).min();
    }
}

//! What the register holds: slots in hashes, leases, a counter. Plain values, so that they can be compared, cloned and
//! explored.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use uuid::Uuid;

use super::{CopyVersion, DedupSlot, Subject, Terms};

/// The last millisecond that is stored; what would be later counts as this (the packed form has six bytes for it).
pub const END_OF_TIME: i64 = (1 << 48) - 1;
/// The highest generation that is told from the next (the packed form has four bytes for it).
pub const LAST_GENERATION: i64 = (1 << 32) - 1;
/// The highest count of crashes (one byte).
pub const MOST_CRASHES: u32 = 255;

/// Whose slots, or whose lease: a reference's or an event's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home<'a> {
    event_type: &'a str,
    kind: char,
    name: &'a str,
}

impl<'a> Home<'a> {
    const fn event(event_type: &'a str, id: &'a str) -> Self {
        Self { event_type, kind: 'i', name: id }
    }

    /// The kept messages that go by the same name.
    #[must_use]
    pub fn kept(&self) -> String {
        let Self { event_type, kind, name } = self;
        format!("{event_type}:p:{kind}:{name}")
    }

    /// Its name among those of its type.
    #[must_use]
    pub fn place(&self) -> String {
        let Self { kind, name, .. } = self;
        format!("{kind}:{name}")
    }

    /// The name that tells it: a reference, or an event's id.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// The lease that goes by the same name.
    #[must_use]
    pub fn lease(&self) -> String {
        let Self { event_type, kind, name } = self;
        format!("{event_type}:l:{kind}:{name}")
    }
}

impl fmt::Display for Home<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event_type, kind, name } = self;
        write!(f, "{event_type}:{kind}:{name}")
    }
}

impl Subject {
    /// Where a slot is kept: with the reference, but an `e:` slot with the event.
    #[must_use]
    pub fn home<'a>(&'a self, slot: &'a DedupSlot) -> Home<'a> {
        match (slot, &self.reference) {
            (DedupSlot::Event(id), _) => Home::event(self.event_type.as_str(), id),
            (_, None) => self.own_home(),
            (_, Some(reference)) => Home { event_type: self.event_type.as_str(), kind: 'r', name: reference.as_str() },
        }
    }

    /// Where the slot is kept that competes with nothing.
    #[must_use]
    pub fn own_home(&self) -> Home<'_> {
        Home::event(self.event_type.as_str(), &self.id)
    }

    /// Whose lease a handler of this event holds.
    #[must_use]
    pub fn leaseholder(&self, terms: &Terms) -> Home<'_> {
        if terms.exclusive { self.home(&DedupSlot::Immediate) } else { self.own_home() }
    }
}

impl DedupSlot {
    /// The slot's name among those of its home: its text, but `e` alone for `e:<id>`, since the home has the id.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            Self::Event(_) => "e".to_owned(),
            other => other.to_string(),
        }
    }
}

impl CopyVersion {
    /// The version that the register compares. What competes with nothing has 0, whatever it carries, and so has a
    /// copy that names no object to compete for.
    #[must_use]
    pub fn counted_version(&self, subject: &Subject) -> i64 {
        if matches!(self.slot, DedupSlot::Event(_)) || subject.reference.is_none() { 0 } else { self.version }
    }

    /// The generation that the register compares.
    #[must_use]
    pub fn counted_generation(&self) -> i64 {
        self.generation.clamp(0, LAST_GENERATION)
    }

    /// The generation of the next copy, as the register compares it.
    #[must_use]
    pub fn counted_next(&self) -> i64 {
        (self.counted_generation() + 1).min(LAST_GENERATION)
    }

    /// The stamp that counts where this one does: an `e:` slot has version 0.
    #[must_use]
    pub fn own(&self) -> Self {
        let version = if matches!(self.slot, DedupSlot::Event(_)) { 0 } else { self.version };
        Self { version, ..self.clone() }
    }
}

/// How far a slot has come; compared in this order of fields, and only ever raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The version.
    pub version: i64,
    /// Whether it is handled to the end, in all its copies.
    pub finished: bool,
    /// The highest generation known.
    pub generation: i64,
}

/// A date before which one (version, generation) must not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Later {
    /// The date, in ms.
    pub at: i64,
    /// The version.
    pub version: i64,
    /// The generation.
    pub generation: i64,
}

/// One slot. Times are in ms; 0 is "never".
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotState {
    /// How far it has come.
    pub mark: Mark,
    /// The highest version known to be in the broker.
    pub newest: i64,
    /// Slot `f` alone: every version up to here is served by a run that began after it was published.
    pub covered: i64,
    /// Since when a version above the mark waits.
    pub since: i64,
    /// A reschedule without a payload.
    pub later: Option<Later>,
    /// The mark's (version, generation) has been started.
    pub begun: bool,
    /// How often it was started and never settled.
    pub crashes: u32,
    /// The mark is a cancel's.
    pub cancelled: bool,
    /// An older version was recorded after a newer one, so its copy may lie behind the newer one's in a queue. Never taken back.
    pub overtaken: bool,
    /// The latest due time of any copy known.
    pub due: i64,
    /// When this slot may go.
    pub until: i64,
}

impl SlotState {
    /// Handled, or a later copy is known, or cancelled, or a newer one has begun.
    #[must_use]
    pub fn stale(&self, version: i64, generation: i64) -> bool {
        let mark = self.mark;
        version < mark.version || (version == mark.version && (mark.finished || generation < mark.generation))
    }

    /// Why a copy is not started any more, for people. The newer event's version is the time of its publishing.
    #[must_use]
    pub fn why_dropped(&self, version: i64) -> String {
        let (mark, newer) = (self.mark, self.mark.version.max(self.newest));
        if self.cancelled && mark.version >= version && newer == mark.version {
            return "it was cancelled".to_owned();
        }
        if newer <= version {
            let why = if mark.finished { "it has been handled" } else { "a later copy of it is known" };
            return why.to_owned();
        }
        let published = Timestamp::from_microsecond(newer).map_or_else(|_| String::new(), |at| format!(" of {at:.3}"));
        let state = if newer == mark.version && mark.finished { "has been handled" } else { "waits or runs" };
        format!("a newer event of its reference has replaced it: version {newer}{published}, which {state}")
    }

    /// Whether the mark is exactly this copy, unfinished.
    #[must_use]
    pub fn is_at(&self, version: i64, generation: i64) -> bool {
        self.mark == Mark { version, finished: false, generation }
    }

    /// Raises the mark, never lowers it. A rise begins anew: nothing of the new mark has been started.
    pub fn raise(&mut self, mark: Mark) {
        if mark > self.mark {
            self.mark = mark;
            self.begun = false;
            self.crashes = 0;
            self.cancelled = false;
        }
    }

    /// Whether some copy is still to run as far as is known.
    #[must_use]
    pub fn open(&self) -> bool {
        !self.mark.finished || self.newest > self.mark.version.max(self.covered)
    }
}

/// Who runs, and what the lease was given for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// Whose.
    pub token: Uuid,
    /// When it ends, in ms.
    pub until: i64,
    /// The slot's field.
    pub field: String,
    /// The version.
    pub version: i64,
    /// The generation.
    pub generation: i64,
    /// The claim's fence.
    pub fence: i64,
    /// The claim's count of crashes.
    pub crashes: u32,
}

/// All that one shard holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    /// The highest version given, in µs.
    pub last: i64,
    /// Slots by home and field. One past its `until` counts as absent, whether it has been removed or not.
    pub slots: BTreeMap<(String, String), SlotState>,
    /// Leases by name. One that has ended counts as absent.
    pub leases: BTreeMap<String, Lease>,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const OLDER: i64 = 1_780_000_000_000_000;
    const NEWER: i64 = OLDER + 1_500_000;

    fn mark(version: i64, finished: bool) -> SlotState {
        SlotState { mark: Mark { version, finished, generation: 0 }, newest: version, ..SlotState::default() }
    }

    #[rstest]
    #[case::handled(mark(OLDER, true), "it has been handled")]
    #[case::copied(mark(OLDER, false), "a later copy of it is known")]
    #[case::cancelled(SlotState { cancelled: true, ..mark(OLDER, true) }, "it was cancelled")]
    #[case::cancelled_later(SlotState { cancelled: true, ..mark(NEWER, true) }, "it was cancelled")]
    #[case::replaced(
        mark(NEWER, true),
        "a newer event of its reference has replaced it: version 1780000001500000 of 2026-05-28T20:26:41.500Z, which has been handled"
    )]
    #[case::to_be_replaced(
        SlotState { newest: NEWER, ..mark(OLDER, false) },
        "a newer event of its reference has replaced it: version 1780000001500000 of 2026-05-28T20:26:41.500Z, which waits or runs"
    )]
    fn why_a_copy_is_dropped_is_told(#[case] slot: SlotState, #[case] why: &str) {
        assert_eq!(slot.why_dropped(OLDER), why);
    }
}

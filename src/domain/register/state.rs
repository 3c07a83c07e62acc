//! The data of the register as plain values: slots in hashes, leases, and a counter.
//!
//! Plain values can be compared and cloned, and the model can explore all their states.

use std::{collections::BTreeMap, fmt, time::Duration};

use jiff::Timestamp;
use uuid::Uuid;

use super::{CopyVersion, DedupSlot, Subject, Terms};

/// The latest time that is stored, in ms. A later time is stored as this one. The packed form has six bytes for it.
pub const END_OF_TIME: i64 = (1 << 48) - 1;
/// The highest generation. Its next copy has the same generation. The packed form has four bytes for it.
pub const LAST_GENERATION: i64 = (1 << 32) - 1;
/// The highest count of crashes. The packed form has one byte for it.
#[cfg(any(test, feature = "internals", feature = "testing"))]
pub const MOST_CRASHES: u32 = 255;

/// The reference or the event that has slots or a lease.
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

    /// Returns the key of its kept messages, within the prefix.
    #[must_use]
    pub fn kept(&self) -> String {
        let Self { event_type, kind, name } = self;
        format!("{event_type}:p:{kind}:{name}")
    }

    /// Returns its name within its type.
    #[must_use]
    pub fn place(&self) -> String {
        let Self { kind, name, .. } = self;
        format!("{kind}:{name}")
    }

    /// Returns the reference or the event's id.
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the name of its lease.
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
    /// Returns the home of a slot: the event for an `e:` slot, and the reference for any other.
    #[must_use]
    pub fn home<'a>(&'a self, slot: &'a DedupSlot) -> Home<'a> {
        match (slot, &self.reference) {
            (DedupSlot::Event(id), _) => Home::event(self.event_type.as_str(), id),
            (_, None) => self.own_home(),
            (_, Some(reference)) => Home { event_type: self.event_type.as_str(), kind: 'r', name: reference.as_str() },
        }
    }

    /// Returns the home of a slot and its name there. An event without a reference has its own slot only, whatever slot
    /// a copy names.
    #[must_use]
    pub fn key(&self, slot: &DedupSlot) -> (String, String) {
        (self.home(slot).to_string(), self.field(slot))
    }

    /// Returns the name of a slot in its home.
    #[must_use]
    pub fn field(&self, slot: &DedupSlot) -> String {
        if self.reference.is_none() { "e".to_owned() } else { slot.field() }
    }

    /// Returns the home of the event's own `e:` slot.
    #[must_use]
    pub fn own_home(&self) -> Home<'_> {
        Home::event(self.event_type.as_str(), &self.id)
    }

    /// Returns the home whose lease a run of this event holds: with `exclusive` the reference, and else the event.
    #[must_use]
    pub fn leaseholder(&self, terms: &Terms) -> Home<'_> {
        if terms.exclusive { self.home(&DedupSlot::Immediate) } else { self.own_home() }
    }
}

impl DedupSlot {
    /// Returns the slot's name within its home: the slot's text, but `e` for `e:<id>`, because the home has the id.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            Self::Event(_) => "e".to_owned(),
            other => other.to_string(),
        }
    }
}

impl CopyVersion {
    /// Returns the version that the register compares. It is 0, whatever the copy carries, for a copy in an `e:` slot
    /// and for a copy without a reference.
    #[must_use]
    pub fn counted_version(&self, subject: &Subject) -> i64 {
        if matches!(self.slot, DedupSlot::Event(_)) || subject.reference.is_none() { 0 } else { self.version }
    }

    /// Returns the generation that the register compares.
    #[must_use]
    pub fn counted_generation(&self) -> i64 {
        self.generation.clamp(0, LAST_GENERATION)
    }

    /// Returns the generation of the next copy, as the register compares it.
    #[must_use]
    pub fn counted_next(&self) -> i64 {
        (self.counted_generation() + 1).min(LAST_GENERATION)
    }

    /// Returns the stamp as the register counts it: with version 0 in an `e:` slot.
    #[must_use]
    pub fn own(&self) -> Self {
        let version = if matches!(self.slot, DedupSlot::Event(_)) { 0 } else { self.version };
        Self { version, ..self.clone() }
    }
}

/// How far a slot has come. Copies below the mark are stale. Marks are compared in the order of their fields, and a
/// slot's mark is only raised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// The highest version that was started, settled or cancelled.
    pub version: i64,
    /// Whether no copy of this version is wanted any more.
    pub finished: bool,
    /// The highest known generation of this version.
    pub generation: i64,
}

/// The time before which one (version, generation) must not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Later {
    /// The time, in ms.
    pub at: i64,
    /// The version.
    pub version: i64,
    /// The generation.
    pub generation: i64,
}

/// The state of one slot. Times are in ms; 0 means never.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotState {
    /// How far the slot has come.
    pub mark: Mark,
    /// The highest version that was recorded, so that the broker is known to have it.
    pub newest: i64,
    /// In slot `f` alone: each version up to this one is served by a run that began after its publish.
    pub covered: i64,
    /// The time since which a version above the mark waits.
    pub since: i64,
    /// The time of a reschedule without a payload.
    pub later: Option<Later>,
    /// Whether the mark's (version, generation) has been started.
    pub begun: bool,
    /// How often a claim of the mark's (version, generation) found that an earlier start was not settled.
    pub crashes: u32,
    /// Whether a cancel has set the mark.
    pub cancelled: bool,
    /// Whether an older version was recorded after a newer one, so that its copy may be behind the newer one in a
    /// queue. It is never reset.
    pub overtaken: bool,
    /// The latest due time of all known copies.
    pub due: i64,
    /// The time at which the slot expires.
    pub until: i64,
}

impl SlotState {
    /// Tells whether a copy must not run any more, because its event was handled or cancelled, a later copy is known,
    /// or a newer event has started.
    #[must_use]
    pub fn stale(&self, version: i64, generation: i64) -> bool {
        let mark = self.mark;
        version < mark.version || (version == mark.version && (mark.finished || generation < mark.generation))
    }

    /// Tells whether a copy is replaced: a newer event of its slot waits or, in slot `f`, a run that serves it has begun.
    /// `field` is the slot's name in its home.
    #[must_use]
    pub fn replaces(&self, field: &str, version: i64) -> bool {
        match field {
            "e" => false,
            "f" => version != self.mark.version && version <= self.covered,
            _ => version < self.newest,
        }
    }

    /// Tells whether a copy waits until this time: it is the copy that a person has put off or, in slot `f`, the first run of an
    /// older event, which would serve the event of that copy.
    #[must_use]
    pub fn postpones(&self, field: &str, later: Later, version: i64, generation: i64) -> bool {
        let serves = field == "f" && version > self.mark.version && version < later.version;
        serves || (version, generation) == (later.version, later.generation)
    }

    /// Returns why a copy does not run any more, for people. The text has the time of the newer event's publishing,
    /// which is its version.
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

    /// Tells whether a cancel has reached a run of this version. A stale version does not say so: a run-now or a reschedule
    /// raises the mark while an older copy runs.
    #[must_use]
    pub const fn cancels(&self, version: i64) -> bool {
        self.cancelled && version < self.mark.version
    }

    /// Tells whether the mark is at exactly this copy and not finished.
    #[must_use]
    pub fn is_at(&self, version: i64, generation: i64) -> bool {
        self.mark == Mark { version, finished: false, generation }
    }

    /// Raises the mark, and never lowers it. A raised mark has not been started and has no crashes.
    pub fn raise(&mut self, mark: Mark) {
        if mark > self.mark {
            self.mark = mark;
            self.begun = false;
            self.crashes = 0;
            self.cancelled = false;
        }
    }

    /// Tells whether some copy is still to run, as far as the register knows.
    #[must_use]
    pub fn open(&self) -> bool {
        !self.mark.finished || self.newest > self.mark.version.max(self.covered)
    }
}

/// Converts a duration to ms, at most [`END_OF_TIME`].
#[must_use]
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).map_or(END_OF_TIME, |ms| ms.min(END_OF_TIME))
}

/// Converts a due time to ms since 1970, at least 0.
#[must_use]
pub fn due_millis(due: Timestamp) -> i64 {
    due.as_millisecond().max(0)
}

/// A lease: the claim that holds it, and the copy that was claimed.
#[cfg(any(test, feature = "internals", feature = "testing"))]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// The token of the claim.
    pub token: Uuid,
    /// The time at which the lease ends, in ms.
    pub until: i64,
    /// The field of the copy's slot.
    pub field: String,
    /// The version of the copy.
    pub version: i64,
    /// The generation of the copy.
    pub generation: i64,
    /// The claim's fence.
    pub fence: i64,
    /// The claim's count of crashes.
    pub crashes: u32,
}

/// The data of one shard.
#[cfg(any(test, feature = "internals", feature = "testing"))]
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    /// The highest version that was given out, in µs.
    pub last: i64,
    /// The slots by home and field. An expired slot counts as absent, whether it has been removed or not.
    pub slots: BTreeMap<(String, String), SlotState>,
    /// The leases by name. A lease that has ended counts as absent.
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
    fn the_reason_for_dropping_a_copy_is_told(#[case] slot: SlotState, #[case] why: &str) {
        assert_eq!(slot.why_dropped(OLDER), why);
    }
}

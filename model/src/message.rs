//! A copy of an event in the broker, and its slot.

use std::fmt;

/// A time of the world. Time stands still unless the scenario is about time.
pub(crate) type Tick = u8;

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    Immediate,
    First,
    Dated,
    DatedAt(Tick),
    RequeuedAt(Tick),
    /// The event's own slot, in which it competes with no other.
    Alone(u8),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Immediate => f.write_str("i"),
            Self::First => f.write_str("f"),
            Self::Dated => f.write_str("d"),
            Self::DatedAt(tick) => write!(f, "d:{tick}"),
            Self::RequeuedAt(tick) => write!(f, "q:{tick}"),
            Self::Alone(event) => write!(f, "e:{}", name(*event)),
        }
    }
}

/// A set of events, a bit for each.
pub(crate) type Set = u8;

/// Returns the set with one event.
pub(crate) const fn only(event: u8) -> Set {
    1 << event
}

/// Returns the letter of an event in a trace.
pub(crate) fn name(event: u8) -> char {
    char::from(b'P' + event)
}

/// A copy of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Message {
    /// The event whose payload the copy carries.
    pub(crate) event: u8,
    pub(crate) place: Place,
    pub(crate) version: i64,
    pub(crate) generation: i64,
    pub(crate) attempts: u8,
    /// The copy is not delivered before this time.
    pub(crate) due: Tick,
    /// The events that the copy was published for: those that the run before it stood for, or its own event.
    pub(crate) serves: Set,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { event, place, version, generation, .. } = self;
        write!(f, "{} ({place}", name(*event))?;
        if *version > 0 {
            write!(f, " version {}", version % 1_000_000)?;
        }
        if *generation > 0 {
            write!(f, " generation {generation}")?;
        }
        f.write_str(")")
    }
}

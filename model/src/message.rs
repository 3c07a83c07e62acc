//! A copy of an event as the broker holds it, and the slot that it is for.

use std::fmt;

/// A time of the world. It stands still unless the scenario is about time.
pub(crate) type Tick = u8;

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    Immediate,
    First,
    Dated,
    DatedAt(Tick),
    RequeuedAt(Tick),
    /// The slot of this event alone.
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

/// The set of one.
pub(crate) const fn only(event: u8) -> Set {
    1 << event
}

/// What people call an event: its payload's number.
pub(crate) fn name(event: u8) -> char {
    char::from(b'P' + event)
}

/// A copy of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Message {
    /// Whose payload it carries.
    pub(crate) event: u8,
    pub(crate) place: Place,
    pub(crate) version: i64,
    pub(crate) generation: i64,
    pub(crate) attempts: u8,
    /// Not delivered before.
    pub(crate) due: Tick,
    /// The events that it was published for: what the run has stood for that it follows, or its own.
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

//! The slot of an event, and the version of one of its copies.

use std::{fmt, str::FromStr};

/// The slot of an event. Events of one (type, reference) in one slot replace each other, or share a run.
///
/// A message carries it in the header `slot`.
///
/// ```
/// use hatchery::DedupSlot;
///
/// let dated: DedupSlot = "d:1780304400000".parse().expect("a slot");
/// assert_eq!(dated, DedupSlot::DatedAt(1_780_304_400_000)); // 2026-06-01T09:00:00Z
/// assert_eq!(DedupSlot::Immediate.to_string(), "i");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DedupSlot {
    /// `i`: immediate events, of which the newest runs.
    Immediate,
    /// `f`: immediate events. One run serves all that were published before it begins.
    First,
    /// `d`: dated events, of which the newest runs, whatever its date.
    Dated,
    /// `d:<ms>`: dated events of exactly this time, in milliseconds since 1970.
    DatedAt(i64),
    /// `q:<ms>`: immediate events that a handler or a person put off to this time, in milliseconds since 1970.
    RequeuedAt(i64),
    /// `e:<id>`: one event, which competes with no other. The register only keeps it from running twice.
    Event(String),
}

/// The error for a text that is not a slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a slot (i, f, d, d:<ms>, q:<ms> or e:<id>)")]
pub struct SlotError(String);

impl fmt::Display for DedupSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Immediate => f.write_str("i"),
            Self::First => f.write_str("f"),
            Self::Dated => f.write_str("d"),
            Self::DatedAt(ms) => write!(f, "d:{ms}"),
            Self::RequeuedAt(ms) => write!(f, "q:{ms}"),
            Self::Event(id) => write!(f, "e:{id}"),
        }
    }
}

impl FromStr for DedupSlot {
    type Err = SlotError;

    fn from_str(text: &str) -> Result<Self, SlotError> {
        let wrong = || SlotError(text.to_owned());
        match text.split_once(':') {
            None if text == "i" => Ok(Self::Immediate),
            None if text == "f" => Ok(Self::First),
            None if text == "d" => Ok(Self::Dated),
            Some(("d", ms)) => ms.parse().map(Self::DatedAt).map_err(|_| wrong()),
            Some(("q", ms)) => ms.parse().map(Self::RequeuedAt).map_err(|_| wrong()),
            Some(("e", id)) if !id.is_empty() => Ok(Self::Event(id.to_owned())),
            _ => Err(wrong()),
        }
    }
}

/// The headers `slot`, `version` and `generation` of a copy, which tell it from other copies.
///
/// Publishers and workers set them. [`EventInfo::copy`](crate::EventInfo::copy) tells which copy of an event is still
/// to run. It is `None` for an event that has ended:
///
/// ```no_run
/// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
/// use hatchery::EventSelector;
///
/// let mut known = events.show(&EventSelector::reference("hr-import", "1234")).await?;
/// known.retain(|event| event.copy.is_some());
/// println!("{} are still to run", known.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyVersion {
    /// The slot in which the event competes.
    pub slot: DedupSlot,
    /// The order of publishing within a (type, reference). It is 0 in an `e:` slot.
    pub version: i64,
    /// 0 for the first message of a version, and one more for each follow-up in the same slot. A copy that is only sent
    /// on, because its reference is busy for example, keeps its number.
    pub generation: i64,
}

impl CopyVersion {
    /// Returns the stamp of an event that competes with no other.
    #[must_use]
    pub fn uncontested(id: &str, generation: i64) -> Self {
        Self { slot: DedupSlot::Event(id.to_owned()), version: 0, generation }
    }

    /// Returns the stamp of the next copy of the same event.
    #[must_use]
    pub fn next(&self) -> Self {
        Self { generation: self.generation + 1, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("")]
    #[case("f:1")]
    #[case("i:1")]
    #[case("d:")]
    #[case("d:soon")]
    #[case("q")]
    #[case("e:")]
    #[case("x:1")]
    fn a_text_that_is_no_slot_is_refused(#[case] text: &str) {
        assert!(text.parse::<DedupSlot>().is_err());
    }

    proptest! {
        #[test]
        fn a_slot_is_read_as_it_is_written(ms: i64, id in ".+") {
            for slot in [DedupSlot::Immediate, DedupSlot::First, DedupSlot::Dated, DedupSlot::DatedAt(ms), DedupSlot::RequeuedAt(ms), DedupSlot::Event(id.clone())] {
                prop_assert_eq!(slot.to_string().parse::<DedupSlot>(), Ok(slot));
            }
        }
    }
}

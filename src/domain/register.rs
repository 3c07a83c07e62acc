//! What the register is asked and what it answers: the vocabulary of the protocol in `docs/register.md`.
//!
//! The register answers one question: is this copy of an event still wanted? It never decides whether to publish.
//! What it holds is in [`state`], what each call does to that in [`transitions`]. Beside it, in [`index`], stands what people
//! are told of the events that wait; nothing is decided from that.

pub mod index;
mod owner;
pub mod search;
pub mod state;
pub mod transitions;

use std::{fmt, str::FromStr, time::Duration};

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

pub use self::owner::{Applied, Other, Owner};
use super::words::{EventType, Reference};

/// What an event competes with: which others of its (type, reference) replace it, or are replaced by it.
///
/// On the wire it is the header `slot`.
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
    /// `i`: immediate events, the newest counts.
    Immediate,
    /// `f`: immediate events, one run counts for all that were published before it begins.
    First,
    /// `d`: dated events, the newest counts whatever its date.
    Dated,
    /// `d:<ms>`: dated events of this very time, in milliseconds since 1970.
    DatedAt(i64),
    /// `q:<ms>`: what a handler, or a person, put off to this time, in milliseconds since 1970.
    RequeuedAt(i64),
    /// `e:<id>`: competes with nothing, and is only protected from running twice.
    Event(String),
}

/// A text that is no slot.
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

/// What a copy carries to be told from the others: headers `slot`, `version` and `generation`.
///
/// Publishers and workers set it. That of [`EventInfo::copy`](crate::EventInfo::copy) says which copy is still to run, and what
/// is at its end has none:
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
    /// What it competes with.
    pub slot: DedupSlot,
    /// The order of publishing within a (type, reference); 0 in an `e:` slot.
    pub version: i64,
    /// 0 when published, one more for every copy made of it later.
    pub generation: i64,
}

impl CopyVersion {
    /// The stamp of an event that competes with nothing.
    #[must_use]
    pub fn alone(id: &str, generation: i64) -> Self {
        Self { slot: DedupSlot::Event(id.to_owned()), version: 0, generation }
    }

    /// The stamp of a later copy of the same event.
    #[must_use]
    pub fn next(&self) -> Self {
        Self { generation: self.generation + 1, ..self.clone() }
    }
}

/// Whom a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The type.
    pub event_type: EventType,
    /// The object, if the event has one.
    pub reference: Option<Reference>,
    /// The event.
    pub id: String,
}

/// What a type's entry in the file means for the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// One event of a reference at a time: the lease is on the reference, not on the event.
    pub exclusive: bool,
    /// How long a lease lasts unless it is renewed.
    pub lease: Duration,
    /// How long a finished version is remembered; at least twice the type's longest retry delay.
    pub dedup_retention: Duration,
    /// How long a stream of changes may put its reference off.
    pub max_wait: Duration,
}

/// *reserve*: by a publisher, before it publishes into a slot other than `e:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Whom it is about.
    pub subject: Subject,
    /// The slot of the event that will be published.
    pub slot: DedupSlot,
    /// When that event is due.
    pub due: Timestamp,
    /// The running event that asks, if one does (a requeue): stale by now, it gets no follow-up.
    pub asked_by: Option<CopyVersion>,
    /// What its type says.
    pub terms: Terms,
}

/// The answer to [`Reserve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The version for the event.
    Version(i64),
    /// Who asked is stale: cancelled while it ran, or replaced.
    Stale,
}

/// *record*: by a publisher, after the broker's confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whom it is about.
    pub subject: Subject,
    /// The slot that it was published into. An `e:` slot is noted in the index alone: nothing competes there.
    pub slot: DedupSlot,
    /// The version that *reserve* gave.
    pub version: i64,
    /// When it is due, for the index.
    pub due: Timestamp,
    /// Why it was published, for the index.
    pub reason: Option<String>,
    /// The message as it was published, where the type keeps payloads and this one is not too large.
    pub kept: Option<Bytes>,
    /// What its type says.
    pub terms: Terms,
}

/// *claim*: by a worker, just before a handler starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whom it is about.
    pub subject: Subject,
    /// What the copy carries.
    pub stamp: CopyVersion,
    /// Names this claim, so that a repeated call gets the same answer. One for each delivery, never for a process.
    pub token: Uuid,
    /// When this copy was due: how late it came tells how long older copies may still lie in a queue.
    pub due: Timestamp,
    /// Nothing else runs in this process, nor will until this event is settled.
    pub alone: bool,
    /// What its type says.
    pub terms: Terms,
}

/// The answer to [`Claim`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// Start the handler.
    Run {
        /// Grows with every claim of a (type, reference): what a handler writes can be fenced with it.
        fence: i64,
        /// How often this copy was started and never settled.
        crashes: u32,
        /// The stamp that counts from here on: the copy's own, or one of slot `e:` where the copy's version was given
        /// out by nobody.
        stamp: CopyVersion,
    },
    /// Handled, cancelled, or a later copy is known: drop it.
    Stale,
    /// A newer one waits: drop it.
    Replaced,
    /// Rescheduled: the same copy again at this time.
    Later(Timestamp),
    /// Another of the same reference (or this one itself) runs: the same copy again in a moment.
    Busy,
    /// It may have killed its worker twice: claim it again when nothing else runs.
    Alone,
}

/// *renew*: by a worker, while the handler runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// Whom it is about.
    pub subject: Subject,
    /// The stamp that the claim answered with.
    pub stamp: CopyVersion,
    /// The claim's.
    pub token: Uuid,
    /// The claim's.
    pub due: Timestamp,
    /// What its type says.
    pub terms: Terms,
}

/// The answer to [`Renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease lasts on.
    Held,
    /// The lease ran out; somebody else may run by now.
    Lost,
}

/// *release*: by a worker that gives back an event whose handler has not really run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Whom it is about.
    pub subject: Subject,
    /// The stamp that the claim answered with.
    pub stamp: CopyVersion,
    /// The claim's.
    pub token: Uuid,
    /// The claim's.
    pub due: Timestamp,
    /// What its type says.
    pub terms: Terms,
}

/// *settle*: by a worker, after the follow-up is confirmed and before the delivery is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// Whom it is about.
    pub subject: Subject,
    /// The stamp that the claim answered with.
    pub stamp: CopyVersion,
    /// The claim's fence.
    pub fence: i64,
    /// The claim's token.
    pub token: Uuid,
    /// The claim's.
    pub due: Timestamp,
    /// How it ended.
    pub end: End,
    /// What its type says.
    pub terms: Terms,
}

/// How a run ended, for the register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Handled to the end: no copy of this version is wanted any more.
    Finished,
    /// A copy of the next generation is in the broker and due at this time: no copy of this generation is wanted.
    Copied {
        /// When the copy is due.
        due: Timestamp,
        /// What the index says of it.
        note: Note,
    },
}

/// What the index says of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Where the copy is.
    pub stage: Stage,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Why it is there.
    pub reason: Option<String>,
}

/// Where a copy is, as far as its last call to the register says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Published and not due yet, or due and not started.
    Waiting,
    /// It failed and waits for its next attempt.
    Retry,
    /// It was given up.
    DeadLetter,
}

/// *later*: by a person, where no payload is kept. Not before this time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// Whom it is about.
    pub subject: Subject,
    /// The copy that waits, as the index or the register showed it.
    pub stamp: CopyVersion,
    /// Not before.
    pub at: Timestamp,
    /// What its type says.
    pub terms: Terms,
}

/// The answer to [`Later`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Postponed {
    /// It waits until then.
    Until,
    /// It has been started: too late.
    Running,
    /// Handled, cancelled or replaced meanwhile.
    Unwanted,
}

/// *cancel*: by a person or a program. What arrives later of what was published before it is stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// Whom it is about.
    pub subject: Subject,
    /// This slot, or every slot of the reference. Without a reference and a slot, the event's own.
    pub slot: Option<DedupSlot>,
    /// When what is to be cancelled is due, where the caller knows: it may be known to the index alone.
    pub due: Option<Timestamp>,
    /// How far ahead a slot may be due that the register has never seen: the ladder's horizon.
    pub horizon: Duration,
}

/// What was found in a slot that was cancelled.
///
/// ```no_run
/// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
/// use hatchery::EventSelector;
///
/// let cancelled = events.cancel(&EventSelector::reference("hr-import", "1234")).await?;
/// if cancelled.iter().any(|slot| slot.running) {
///     println!("an import of 1234 is running, and goes on");
/// }
/// println!("{} of 1234 will not run", cancelled.iter().filter(|slot| slot.waiting).count());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancelled {
    /// Which.
    pub slot: DedupSlot,
    /// Something waited in it, as far as is known. It will not run.
    pub waiting: bool,
    /// Something of it had been started and was not settled: that run goes on, and is not tried again.
    pub running: bool,
    /// Its mark was a cancel's before: of this very call, perhaps, if its first answer was lost.
    pub already: bool,
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
    fn what_is_no_slot_is_refused(#[case] text: &str) {
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

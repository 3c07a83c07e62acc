//! The calls to the register and their answers: the vocabulary of the protocol in `docs/register.md`.
//!
//! The register answers one question: is this copy of an event still wanted? It never decides whether to publish.
//! [`state`] defines the data that it holds, and [`transitions`] defines how each call changes the data. [`index`]
//! lists the waiting events for people; nothing is decided from it.

pub mod ended_runs;
pub mod event_info;
pub mod event_state;
pub mod filter;
pub mod index;
mod owner;
mod slot;
pub mod state;
#[cfg(any(test, feature = "internals", feature = "testing"))]
pub mod transitions;

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

pub use self::{
    owner::{Applied, Other, Owner},
    slot::{CopyVersion, DedupSlot, SlotError},
};
use super::words::{EventType, Reference};

/// The event that a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The event's type.
    pub event_type: EventType,
    /// The event's reference, if it has one.
    pub reference: Option<Reference>,
    /// The event's id.
    pub id: String,
}

/// The settings of a type that the register needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Whether only one event of a reference runs at a time. If so, a run takes the lease of its reference, and
    /// otherwise that of its event.
    pub exclusive: bool,
    /// How long a lease lasts without being renewed.
    pub lease: Duration,
    /// How long the register keeps a finished version; at least twice the type's longest retry delay.
    pub dedup_retention: Duration,
    /// The longest time that a stream of newer events may postpone the run of a reference.
    pub max_wait: Duration,
}

impl Terms {
    /// Returns how long after its *reserve* an event may be sent: half of the retention. The register forgets finished events
    /// after the retention, and a version older than that could run after a newer one.
    #[must_use]
    pub fn sendable(&self) -> Duration {
        self.dedup_retention / 2
    }
}

/// The call *reserve*: a publisher makes it before it publishes into a slot other than `e:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The event to publish.
    pub subject: Subject,
    /// The slot of the event.
    pub slot: DedupSlot,
    /// The time at which the event is due.
    pub due: Timestamp,
    /// The running copy whose requeue makes this call, if any. If that copy is stale by now, it gets no follow-up.
    pub asked_by: Option<CopyVersion>,
    /// The settings of the type.
    pub terms: Terms,
}

/// The answer to [`Reserve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The version for the event.
    Version(i64),
    /// The copy that makes the call is stale: it was cancelled while it ran, or another run of it has ended.
    Stale,
}

/// The call *record*: a publisher makes it after the broker's confirm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The published event.
    pub subject: Subject,
    /// The slot of the event. An `e:` slot is recorded in the index alone, because no event competes there.
    pub slot: DedupSlot,
    /// The version that *reserve* gave.
    pub version: i64,
    /// The time at which the event is due, for the index.
    pub due: Timestamp,
    /// Why the event was published, for the index.
    pub reason: Option<String>,
    /// The message as it was published, if the type keeps payloads and this one is not too large.
    pub kept: Option<Bytes>,
    /// The settings of the type.
    pub terms: Terms,
}

/// The call *claim*: a worker makes it just before a handler starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The event to run.
    pub subject: Subject,
    /// The stamp of the copy that was delivered.
    pub stamp: CopyVersion,
    /// The idempotency token of the claim. A repeated call with it gets the same answer.
    pub token: Uuid,
    /// The time at which this copy was due. The later it came, the longer older copies may still wait
    /// in the queue, and the longer the register has to remember what made them stale.
    pub due: Timestamp,
    /// Whether nothing else runs in this process, nor will until this event is settled.
    pub alone: bool,
    /// The settings of the type.
    pub terms: Terms,
}

/// The answer to [`Claim`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// The handler may start.
    Run {
        /// A number that grows with each claim of a (type, reference). A handler can fence its writes with it.
        fence: i64,
        /// How often this copy was started and never settled.
        crashes: u32,
        /// The stamp for the calls that follow: that of the copy, or one with an `e:` slot if the register never gave
        /// out the copy's version.
        stamp: CopyVersion,
    },
    /// The event was handled or cancelled, or a later copy is known. The worker drops this copy.
    Stale,
    /// A newer event of the slot waits. The worker drops this copy.
    Replaced,
    /// The event was rescheduled to this time. The worker sends the same copy on until then.
    Later(Timestamp),
    /// An event of the same reference runs, perhaps this one. The worker sends the same copy on for a moment.
    Busy,
    /// The event may have killed its worker twice. The worker claims it again when nothing else runs.
    Alone,
}

impl ClaimAnswer {
    /// Returns the answer that lets a handler start. If the copy does not count as it names itself, the stamp is that of
    /// the event's own `e:` slot.
    pub(crate) fn run(call: &Claim, fence: i64, crashes: u32, as_named: bool) -> Self {
        let has_slot = matches!(call.stamp.slot, DedupSlot::Event(_)) || call.subject.reference.is_some();
        let alone = || CopyVersion::uncontested(&call.subject.id, call.stamp.generation);
        let stamp = if as_named && has_slot { call.stamp.own() } else { alone() };
        Self::Run { fence, crashes, stamp }
    }
}

/// The call *renew*: a worker makes it while the handler runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The running event.
    pub subject: Subject,
    /// The stamp from the answer to the claim.
    pub stamp: CopyVersion,
    /// The token of the claim.
    pub token: Uuid,
    /// The due time of the claim.
    pub due: Timestamp,
    /// The settings of the type.
    pub terms: Terms,
}

/// The answer to [`Renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// The lease goes on.
    Held,
    /// The lease goes on, and the event was cancelled since it was claimed. The handler is told, its outcome is not carried
    /// out, and the event is settled as done.
    Cancelled,
    /// The lease ran out, so another worker may run the event by now.
    Lost,
}

/// The call *release*: a worker makes it when it gives an event back without having run its handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The event to give back.
    pub subject: Subject,
    /// The stamp from the answer to the claim.
    pub stamp: CopyVersion,
    /// The token of the claim.
    pub token: Uuid,
    /// The due time of the claim.
    pub due: Timestamp,
    /// The settings of the type.
    pub terms: Terms,
}

/// The call *settle*: a worker makes it after the follow-up is confirmed and before the delivery is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The event that ran.
    pub subject: Subject,
    /// The stamp from the answer to the claim.
    pub stamp: CopyVersion,
    /// The fence from the answer to the claim.
    pub fence: i64,
    /// The token of the claim.
    pub token: Uuid,
    /// The due time of the claim.
    pub due: Timestamp,
    /// The end of the run.
    pub end: End,
    /// The settings of the type.
    pub terms: Terms,
}

impl Settle {
    /// Returns the settlement of a copy that no run has ended: a person has sent or discarded it. `fence` is the slot's `covered`
    /// when the person looked, because a run that has begun since must not be hidden. It gives no lease back.
    #[must_use]
    pub const fn by_a_person(
        subject: Subject,
        stamp: CopyVersion,
        fence: i64,
        due: Timestamp,
        end: End,
        terms: Terms,
    ) -> Self {
        Self { subject, stamp, fence, token: Uuid::nil(), due, end, terms }
    }
}

/// The end of a run, for the register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The event is handled to the end. No copy of this version is wanted any more.
    Finished,
    /// A copy of the next generation is in the broker. No copy of this generation is wanted any more.
    Copied {
        /// The time at which the copy is due.
        due: Timestamp,
        /// The index's entry for the copy.
        note: Note,
    },
}

/// The index's entry for a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The queues in which the copy is.
    pub stage: Stage,
    /// Failed attempts so far.
    pub attempts: u32,
    /// Why the copy is there.
    pub reason: Option<String>,
}

/// The queues in which a copy is, according to the last call about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The copy is published and not started: it is not due yet, or it waits for a worker.
    Waiting,
    /// The event failed, and the copy waits for the next attempt.
    Retry,
    /// The event was given up, and the copy is a dead letter.
    DeadLetter,
}

/// The call *later*: a person puts off an event whose payload the register does not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    /// The event to reschedule.
    pub subject: Subject,
    /// The waiting copy, as the index or the register showed it.
    pub stamp: CopyVersion,
    /// The time before which the copy must not run.
    pub at: Timestamp,
}

/// The answer to [`Later`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Postponed {
    /// The copy waits until that time.
    Until,
    /// The copy has been started, so the call came too late.
    Running,
    /// The event was handled, cancelled or replaced meanwhile.
    Unwanted,
}

/// The call *cancel*: a person or a program makes it. All copies that were published before it are stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The event, or an event of the reference.
    pub subject: Subject,
    /// The slot to cancel. `None` means every slot of the reference, or the event's own slot if it has no reference.
    pub slot: Option<DedupSlot>,
    /// The time at which the cancelled event is due, if the caller knows it. Only the index may have it.
    pub due: Option<Timestamp>,
    /// How long the cancel of a slot that the register has never seen is remembered: the longest time that an event can wait
    /// in the ladder or a hatchery. An unseen event that is due later than this runs.
    pub horizon: Duration,
}

/// The contents of a slot that was cancelled.
///
/// ```no_run
/// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
/// use hatchery::EventSelector;
///
/// let cancelled = events.cancel(&EventSelector::reference("hr-import", "1234")).await?;
/// if cancelled.iter().any(|slot| slot.running) {
///     println!("an import of 1234 is running, and ends soon");
/// }
/// println!("{} of 1234 will not run", cancelled.iter().filter(|slot| slot.waiting).count());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancelled {
    /// The slot.
    pub slot: DedupSlot,
    /// The id of the event that waited or ran, if the register had it just before. By its id the register may tell later what became of
    /// the event.
    pub id: Option<String>,
    /// Whether an event waited in the slot, as far as the register knows. It will not run.
    pub waiting: bool,
    /// Whether an event of the slot was started and not settled. Its worker is told when it renews the lease, and ends the run.
    /// The event is not tried again.
    pub running: bool,
    /// Whether the slot was cancelled before. If the first answer to this call was lost, this call itself may have done
    /// so.
    pub already: bool,
}

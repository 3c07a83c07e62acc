//! The order of effects in `src/publish` and `src/work`. A step of a publisher or a worker is one effect, so that a crash may come
//! between any two.

/// One effect, named after its place in the code. Each effect is confirmed before the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Effect {
    /// `publish::publisher`: `ask`, and `publish::versions`: `wait`.
    Reserve,
    /// `publish::publisher`: `send`. The publish and its confirm are one step, because nobody else sees a difference between
    /// them, and the model demands more if the event counts as confirmed at once. A lost confirm is a fault of this
    /// step.
    Publish,
    /// `publish::publisher`: the step after `publish.confirmed`.
    Record,
    /// `operate::sending`: a person moves an event within its slot, and reserves the later of both dates.
    ReserveCopy,
    /// `work::follow_up`, by `to_retry` and `to_scheduler` of `routes`, and a person's replay and run-now. They publish a
    /// copy with the next generation.
    PublishCopy,
    /// `PublishCopy` after `raise_due`: the copy waits longer than the type's own delays.
    PublishCopyLater,
    /// `work::follow_up`, by `to_dead_letter` of `routes`.
    PublishLetter,
    /// `work::follow_up`: `requeue` reserves a version for the later run. A person's reschedule does the same.
    ReserveAgain,
    PublishAgain,
    RecordAgain,
    /// `operate::sending`: a person publishes an event of slot `f` anew, in the same slot.
    ReserveAnew,
    PublishAnew,
    RecordAnew,
    /// `work::event_loop`, with `End::Finished`.
    SettleFinished,
    /// `work::event_loop`, with `End::Copied`.
    SettleCopied,
    /// `work::claim`: `let_go` releases the claim, and nothing is settled.
    Release,
    /// `work::stage`: `Settled::acknowledge`.
    Acknowledge,
    /// Mutant: a requeued event goes to `d:<at>` with its old version.
    #[cfg(test)]
    PublishDatedAgain,
}

/// The effects that are left to do.
pub(crate) type Effects = &'static [Effect];

/// The effects of each outcome and each action, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// A publish into a slot in which events compete.
    pub(crate) publish: Effects,
    /// A publish into the event's own slot.
    pub(crate) publish_alone: Effects,
    pub(crate) finish: Effects,
    pub(crate) retry: Effects,
    pub(crate) dead_letter: Effects,
    pub(crate) requeue: Effects,
    /// A requeue of an event that stays in its slot: of all but immediate events.
    pub(crate) requeue_in_place: Effects,
    /// A requeue whose event is stale, by the register's answer to *reserve*.
    pub(crate) unwanted: Effects,
    pub(crate) replay: Effects,
    pub(crate) run_now: Effects,
    pub(crate) reschedule: Effects,
    /// A run-now, or a reschedule to an earlier date, in slot `f`.
    pub(crate) move_anew: Effects,
    /// A run-now or a reschedule of an event in its own slot.
    pub(crate) move_alone: Effects,
}

use Effect::{
    Acknowledge, Publish, PublishAgain, PublishAnew, PublishCopy, PublishCopyLater, PublishLetter, Record, RecordAgain,
    RecordAnew, Release, Reserve, ReserveAgain, ReserveAnew, ReserveCopy, SettleCopied, SettleFinished,
};

impl Order {
    /// The order of the code.
    pub(crate) const OURS: Self = Self {
        publish: &[Reserve, Publish, Record],
        publish_alone: &[Publish],
        finish: &[SettleFinished, Acknowledge],
        retry: &[PublishCopy, SettleCopied, Acknowledge],
        dead_letter: &[PublishLetter, SettleCopied, Acknowledge],
        requeue: &[ReserveAgain, PublishAgain, RecordAgain, SettleFinished, Acknowledge],
        requeue_in_place: &[PublishCopyLater, SettleCopied, Acknowledge],
        unwanted: &[Release, Acknowledge],
        replay: &[PublishCopy, SettleCopied, Acknowledge],
        run_now: &[PublishCopy, SettleCopied],
        reschedule: &[ReserveAgain, PublishAgain, RecordAgain, SettleFinished],
        move_anew: &[ReserveAnew, PublishAnew, RecordAnew],
        move_alone: &[ReserveCopy, PublishCopy, SettleCopied],
    };
}

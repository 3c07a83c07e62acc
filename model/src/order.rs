//! The order of effects, as `src/flow` has it. A step of a publisher or a worker is one effect, so that a crash may come
//! between any two.

/// One effect. Each is confirmed before the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Effect {
    /// `flow::publish`: `ask` and `wait`.
    Reserve,
    /// `flow::publish`: `send`. Published and confirmed are one step: between them nobody else sees a difference, and what
    /// counts is more if it counts as accepted already. A lost confirm is a fault of this step.
    Publish,
    /// `flow::publish`: what follows `publish.confirmed`.
    Record,
    /// `flow::events::sending`: what a person gives another time in its own slot is reserved for the later of both dates.
    ReserveCopy,
    /// `flow::settle`: `to_retry` and `to_scheduler`; a person's replay and run-now. A copy with the next generation.
    PublishCopy,
    /// The same after `raise_due`: a copy that waits longer than the type's own delays.
    PublishCopyLater,
    /// `flow::settle`: `to_dead_letter`.
    PublishLetter,
    /// `flow::settle`: `requeue` asks for a version for what comes again later; a person's reschedule.
    ReserveAgain,
    PublishAgain,
    RecordAgain,
    /// `flow::settle`: `carry_out`, with `End::Finished`.
    SettleFinished,
    /// The same with `End::Copied`.
    SettleCopied,
    /// `flow::settle`: the claim is given back, and the register told no more.
    Release,
    /// `flow::work`: `answer`.
    Acknowledge,
    /// Mutant: what comes again later goes to `d:<at>` with the version that it has.
    #[cfg(test)]
    PublishDatedAgain,
}

/// What is left to do.
pub(crate) type Effects = &'static [Effect];

/// Who does what in which order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// Into a slot where versions count.
    pub(crate) publish: Effects,
    /// Into a slot of its own.
    pub(crate) publish_alone: Effects,
    pub(crate) finish: Effects,
    pub(crate) retry: Effects,
    pub(crate) dead_letter: Effects,
    pub(crate) requeue: Effects,
    /// The same for what stays in its slot: all but immediate events.
    pub(crate) requeue_in_place: Effects,
    /// The register says that who asks for a version for later is stale.
    pub(crate) unwanted: Effects,
    pub(crate) replay: Effects,
    pub(crate) run_now: Effects,
    pub(crate) reschedule: Effects,
    /// Either of the two, of what competes with nothing.
    pub(crate) move_alone: Effects,
}

use Effect::{
    Acknowledge, Publish, PublishAgain, PublishCopy, PublishCopyLater, PublishLetter, Record, RecordAgain, Release,
    Reserve, ReserveAgain, ReserveCopy, SettleCopied, SettleFinished,
};

impl Order {
    /// As `src/flow` has it.
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
        move_alone: &[ReserveCopy, PublishCopy, SettleCopied],
    };
}

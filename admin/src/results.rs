//! The options and the results of a plan, an apply and a destroy.

use std::time::Duration;

use hatchery::{EventType, internals::switches::Pause};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    live::Observed,
    plan::{Address, Destruction, Plan},
};

/// The change of a schedule by an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleChange {
    /// The schedule is as it was.
    Unchanged,
    /// The schedule is new, or has another definition, and its next event is due at this time.
    Armed(Timestamp),
    /// The schedule is paused, and has another definition now.
    Paused,
    /// The schedule's next event was lost, perhaps lost, or too far ahead. An event in its place was published, and is due at this time.
    ArmedAgain(Timestamp),
    /// The schedule has left the file: its next event does not run.
    Removed,
}

/// A pause that an apply begins or ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PauseChange {
    /// The pause.
    pub pause: Pause,
    /// Whether it begins. Otherwise it ends.
    pub begins: bool,
}

/// Each schedule, with the change that an apply makes to it.
pub type ScheduleChanges = Vec<(String, ScheduleChange)>;

/// The number of waiting events that no worker of the file takes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftoverType {
    /// The number of events that were counted.
    pub events: u64,
    /// Whether there are more than were counted.
    pub or_more: bool,
    /// The due time of the next one.
    pub next_due: Option<Timestamp>,
}

/// The answer of Redis about the types that a plan finds on the broker and not in the file.
#[derive(Clone, Debug, Default)]
pub struct LeftoverTypes {
    /// The types that still have events.
    pub known: Vec<(EventType, LeftoverType)>,
    /// The types that Redis gave no answer about, and the reason.
    pub unknown: Option<(Vec<EventType>, String)>,
}

impl LeftoverTypes {
    /// Returns whether pruning would be refused.
    #[must_use]
    pub fn is_blocked(&self, prune: bool) -> bool {
        prune && !self.known.is_empty()
    }
}

/// The changes that an apply makes only if it is asked for them.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Asked {
    /// Replace objects that cannot be changed in place; their events are moved, and none is lost.
    pub migrate: bool,
    /// Remove owned objects that are no longer in the file, once they are provably empty.
    pub prune: bool,
}

impl Asked {
    /// Returns the changes that either of the two asks for.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { migrate: self.migrate || other.migrate, prune: self.prune || other.prune }
    }

    /// Whether an apply would write nothing on the broker.
    #[must_use]
    pub fn nothing_to_do(self, plan: &Plan) -> bool {
        plan.in_sync() && !(self.prune && plan.counts().leftover > 0)
    }
}

/// How a topology is applied.
#[derive(Clone, Debug)]
pub struct Options {
    /// The changes that are made only if they are asked for. None by default.
    pub asked: Asked,
    /// How long to wait for another apply. Default: 30 s.
    pub lock_timeout: Duration,
    /// How long queues may take to drain that are replaced or removed. Default: 10 minutes.
    pub drain_timeout: Duration,
    /// The brokers, by their cluster names, and the topologies that the register is taken over from.
    pub moved_from: Vec<String>,
    /// Whether an apply is refused if its plan differs from the one that the caller has seen.
    pub as_planned: bool,
}

impl Default for Options {
    fn default() -> Self {
        let (lock_timeout, drain_timeout) = (Duration::from_secs(30), Duration::from_mins(10));
        Self { asked: Asked::default(), lock_timeout, drain_timeout, moved_from: Vec::new(), as_planned: false }
    }
}

/// The result of a plan: the changes that an apply would make.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The differences between the file and the broker.
    pub plan: Plan,
    /// The objects of the broker.
    pub observed: Observed,
    /// Types that are no longer in the file and still have events.
    pub left_types: LeftoverTypes,
    /// The changes to schedules. `Err` says why Redis does not tell.
    pub schedules: Result<ScheduleChanges, String>,
    /// The pauses of the file that begin and end. `Err` says why the broker does not tell.
    pub pauses: Result<Vec<PauseChange>, String>,
}

impl Planned {
    /// Whether an apply would be refused.
    #[must_use]
    pub fn is_blocked(&self, asked: Asked) -> bool {
        self.plan.is_blocked(asked.migrate) || self.left_types.is_blocked(asked.prune)
    }
}

/// The result of an apply.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The plan at the time of the first write.
    pub plan: Plan,
    /// The broker's objects at that time.
    pub observed: Observed,
    /// Types that are no longer in the file and still have events.
    pub left_types: LeftoverTypes,
    /// Messages that were moved.
    pub moved: u64,
    /// Objects that were removed by pruning.
    pub removed: usize,
    /// Leftovers that pruning had to leave, with what keeps each; `None` if nothing was to be pruned.
    pub left: Option<Vec<(Address, String)>>,
    /// The changes to schedules.
    pub schedules: ScheduleChanges,
    /// The pauses of the file that have begun and ended.
    pub pauses: Vec<PauseChange>,
}

impl From<Planned> for Applied {
    fn from(Planned { plan, observed, left_types, .. }: Planned) -> Self {
        Self { plan, observed, left_types, moved: 0, removed: 0, left: None, schedules: Vec::new(), pauses: Vec::new() }
    }
}

/// The objects that a destroy would remove, or has removed.
#[derive(Clone, Debug)]
pub struct Doomed {
    /// The objects, and the reasons that keep them.
    pub found: Destruction,
    /// The objects of the broker.
    pub observed: Observed,
    /// Whether objects in use are removed too, and their messages lost.
    pub force: bool,
    /// The pauses that are forgotten with the stream. Empty in the result of a destroy.
    pub pauses: Vec<Pause>,
}

//! A state of the world: the broker's messages, Redis, and where everybody is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    hash::{DefaultHasher, Hash, Hasher},
};

use hatchery::internals::schedule::{
    link::Link,
    rule::{Arm, Mode},
    state::{Armed, ScheduleState},
};
use jiff::Timestamp;

use super::scenario::{Protocol, Scenario};

/// A message. The number of its definition stands for its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Copy {
    pub(crate) arm: Arm,
    pub(crate) definition: u8,
}

/// The state of an event in the register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Mark {
    pub(crate) finished: bool,
    /// Whether a worker holds the lease.
    pub(crate) leased: bool,
}

/// How far a worker is with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum At {
    /// The register has granted the claim.
    Claimed,
    /// The event is admitted. The next event is to be published.
    Arming(Arm, End),
    /// The next event is published.
    Armed(Arm, End),
    /// The start is to be written, and then the next event is to be published.
    Starting(Option<Arm>, End),
    /// The handler runs.
    Running,
    /// The handler has ended.
    Ended,
    /// The end is written. The event is to be settled.
    Settling,
    /// The event is settled.
    Settled,
}

/// The reason to arm the next event: this one runs, is skipped, has ended, or was settled elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    Run,
    Skip,
    Over,
    Passed,
}

/// A worker that holds an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Task {
    pub(crate) copy: Copy,
    pub(crate) at: At,
}

/// How far an apply or a healing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Repair {
    Idle,
    /// The state is written, and this is to be published next.
    Publishing(Arm),
    Published(Arm),
    Done,
}

/// A state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// The minute.
    pub(crate) now: i64,
    pub(crate) queue: Vec<Copy>,
    pub(crate) state: Option<ScheduleState>,
    pub(crate) marks: BTreeMap<i64, Mark>,
    pub(crate) workers: [Option<Task>; 2],
    pub(crate) applies: Vec<Repair>,
    pub(crate) healing: Repair,
    /// The file of the worker that heals.
    pub(crate) healer: u8,
    /// Whether somebody has healed in this minute.
    pub(crate) healed: bool,
    pub(crate) faults: u8,
    /// The minutes since the last fault and the last apply.
    pub(crate) quiet: i64,
    /// The finished runs by position.
    pub(crate) finished: BTreeMap<i64, u8>,
    /// Whether Redis or the queues have lost data.
    pub(crate) has_lost: bool,
    /// The first instant that was armed.
    pub(crate) first: Option<i64>,
}

/// A property that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Two runs of one event have ended.
    RanTwice,
    /// An instant has passed without a run.
    NeverRan,
    /// The schedule has no next event, although nothing has happened for three minutes.
    NoChain,
    /// The schedule has two next events, although nothing has happened for three minutes.
    TwoChains,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RanTwice => "two runs of one event have ended",
            Self::NeverRan => "an instant has passed without a run",
            Self::NoChain => "no event of the schedule waits",
            Self::TwoChains => "the schedule has two chains",
        })
    }
}

/// The time within which a chain is whole again after a fault, in minutes.
const HEALING: i64 = 3;

impl World {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            now: 1,
            queue: Vec::new(),
            state: None,
            marks: BTreeMap::new(),
            workers: [None, None],
            applies: vec![Repair::Idle; scenario.applies.len()],
            healing: Repair::Idle,
            healer: 0,
            healed: false,
            faults: scenario.faults,
            quiet: 0,
            finished: BTreeMap::new(),
            has_lost: false,
            first: None,
        }
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn time(&self) -> Timestamp {
        Timestamp::from_second(self.now * 60).expect("a time")
    }

    pub(crate) fn link(scenario: &Scenario, copy: Copy) -> Link {
        scenario.definition(copy.definition).link(copy.arm.position)
    }

    pub(crate) fn is_due(&self, copy: Copy) -> bool {
        copy.arm.due <= self.time().as_millisecond()
    }

    /// Tells whether all applies have ended, in whatever way.
    pub(crate) fn is_applied(&self) -> bool {
        self.applies.iter().all(|apply| *apply == Repair::Done)
    }

    /// Returns the broken property, if one is.
    pub(crate) fn broken(&self, scenario: &Scenario) -> Option<Broken> {
        if !self.has_lost && self.finished.values().any(|runs| *runs > 1) {
            return Some(Broken::RanTwice);
        }
        let state = self.state.as_ref()?;
        let is_idle = self.workers.iter().all(Option::is_none) && !self.queue.iter().any(|copy| self.is_due(*copy));
        let is_settled = self.quiet >= HEALING && self.is_applied() && (self.healed || !scenario.heals()) && is_idle;
        if !is_settled || state.is_removed() || self.healing != Repair::Idle {
            return None;
        }
        let goes_on =
            |copy: &&Copy| scenario.protocol == Protocol::ArmsAlways || state.is_next(&Self::link(scenario, **copy));
        let next: BTreeSet<i64> = self.unfinished().filter(goes_on).map(|copy| copy.arm.position).collect();
        if next.len() > 1 {
            return Some(Broken::TwoChains);
        }
        // The loss of an event is found out once it is overdue.
        let is_overdue = |armed: Armed| armed.arm.due + HEALING * 60_000 <= self.time().as_millisecond();
        if next.is_empty() {
            return state.armed.is_none_or(is_overdue).then_some(Broken::NoChain);
        }
        let ran = |slot: i64| self.finished.contains_key(&slot);
        let is_owed = scenario.mode == Mode::Fixed && !self.has_lost;
        let now = self.time().as_millisecond();
        let mut slots = self.first.into_iter().flat_map(|first| (first..now).step_by(120_000));
        (is_owed && !slots.all(ran)).then_some(Broken::NeverRan)
    }

    /// Returns the messages whose events have not run.
    fn unfinished(&self) -> impl Iterator<Item = &Copy> {
        self.queue.iter().filter(|copy| !self.marks.get(&copy.arm.position).is_some_and(|mark| mark.finished))
    }

    /// Describes the world, for a trace.
    pub(crate) fn shown(&self) -> String {
        let mut text = format!("{} min", self.now);
        for copy in &self.queue {
            let _ = write!(text, ", {}@{}", copy.arm.position / 1_000, copy.definition);
        }
        for task in self.workers.iter().flatten() {
            let _ = write!(text, ", {}: {:?}", task.copy.arm.position / 1_000, task.at);
        }
        let _ = write!(text, "; {}", self.state.as_ref().map_or_else(|| "no state".to_owned(), ScheduleState::text));
        text
    }
}

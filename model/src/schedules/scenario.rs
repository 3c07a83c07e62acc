//! The scenarios: how many applies, which definitions, which faults.

use std::time::Duration;

use bytes::Bytes;
use hatchery::internals::schedule::{
    calendar::Calendar,
    definition::Definition,
    rule::{CatchUp, Mode, OnScheduleFailure, Overlap, Rule},
};

/// A fault. A scenario allows some kinds, and a number of faults in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// A worker, an apply or a healing ends between two steps.
    Crash,
    /// A message is in the broker twice.
    Duplicate,
    /// All messages that wait are removed.
    Purge,
    /// Redis loses its data.
    Flush,
}

/// All faults.
pub(crate) const ALL: &[Fault] = &[Fault::Crash, Fault::Duplicate, Fault::Purge, Fault::Flush];
/// The faults that leave Redis and the queues intact.
pub(crate) const CRASHES: &[Fault] = &[Fault::Crash, Fault::Duplicate];

/// A scenario.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) mode: Mode,
    /// The applies, in any order: which definition the file of each has, and `None` if the schedule has left it.
    pub(crate) applies: &'static [Option<u8>],
    /// The definition that the files of the workers have. The first of these workers heal only before the second apply has ended.
    pub(crate) files: [u8; 2],
    pub(crate) kinds: &'static [Fault],
    pub(crate) faults: u8,
    /// The last tick.
    pub(crate) ticks: i64,
    pub(crate) protocol: Protocol,
}

/// The protocol, or a mutant of it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "the tests explore the mutants"))]
pub(crate) enum Protocol {
    Ours,
    /// A worker arms the next event also for an event from which the chain does not go on.
    ArmsAlways,
    /// The state says that an event is armed before the broker has confirmed it.
    ArmedUnpublished,
    /// A dropped event is settled as finished also if another copy of it is armed.
    FinishesArmed,
    /// Nobody heals.
    HealsNever,
    /// Nobody heals, and a worker arms nothing for an event that was settled before.
    PassesNever,
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { faults: 2, ..FIXED },
    Scenario { name: "fixed, two definitions", applies: &[Some(0), Some(1)], files: [0, 1], ticks: 6, ..FIXED },
    Scenario { name: "fixed, same apply twice", applies: &[Some(0), Some(0)], ..FIXED },
    Scenario { name: "fixed, removed", applies: &[Some(0), None], ..FIXED },
    Scenario { name: "fixed, forgets", kinds: ALL, ..FIXED },
    Scenario { name: "sequential", mode: Mode::Sequential, ..FIXED },
    Scenario {
        name: "sequential, two definitions",
        mode: Mode::Sequential,
        applies: &[Some(0), Some(1)],
        files: [0, 1],
        ticks: 6,
        ..FIXED
    },
    Scenario { name: "sequential, forgets", mode: Mode::Sequential, kinds: ALL, ..FIXED },
];

const FIXED: Scenario = Scenario {
    name: "fixed",
    mode: Mode::Fixed,
    applies: &[Some(0)],
    files: [0, 0],
    kinds: CRASHES,
    faults: 1,
    ticks: 7,
    protocol: Protocol::Ours,
};

impl Scenario {
    pub(crate) const fn heals(&self) -> bool {
        !matches!(self.protocol, Protocol::HealsNever | Protocol::PassesNever)
    }

    /// Returns a definition by its number.
    pub(crate) fn definition(&self, number: u8) -> Definition {
        let word = |text: &str| text.parse().expect("a word");
        Definition {
            name: word("poll"),
            event_type: word("import"),
            reference: None,
            payload: Bytes::from(number.to_string()),
            rule: Rule {
                calendar: Calendar::every(Duration::from_mins(2)).expect("an interval"),
                mode: self.mode,
                jitter: Duration::ZERO,
                overlap: Overlap::Queue,
                catch_up: CatchUp::All,
                on_failure: OnScheduleFailure::Continue,
            },
            paused: None,
        }
    }
}

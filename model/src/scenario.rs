//! The scenarios to explore: the publishes, the answers of handlers, the actions of people, and the faults.

use std::time::Duration;

use hatchery::internals::register::Terms;

use crate::{
    message::{Place, Tick},
    order::Order,
    rules::{Ours, Rules},
};

/// The due time of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    Now,
    At(Tick),
}

/// A handler's answer other than `Done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Answer {
    Retry,
    DeadLetter,
    Requeue,
}

/// An action of a person, taken at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    CancelReference,
    CancelSlot(Place),
    CancelEvent(u8),
    /// Publishes a dead letter again, as a copy of the next generation.
    Replay,
    /// Moves a dead letter back into the queue unchanged.
    Shovel,
    /// Publishes a waiting event at once, as a copy of the next generation.
    RunNow,
    /// Publishes a waiting event for another time.
    Reschedule,
    /// Postpones a waiting event whose payload was not kept, by the call *later*.
    Later,
}

/// A fault. A scenario allows some kinds, and a number of faults in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fault {
    PublisherCrashes,
    WorkerCrashes,
    PersonCrashes,
    /// A worker's connection to the broker is lost, and its handlers go on.
    Disconnect,
    /// A living worker does not renew a lease in time.
    LeaseRunsOut,
    /// A worker gives a running event back.
    GivesBack,
    /// A publish arrives, but its confirm is lost.
    ConfirmLost,
    /// A claim or a cancel arrives, but its answer is lost.
    AnswerLost,
    /// A call arrives late, or a second time.
    CallLate,
    /// Redis is away when a version is to be reserved.
    NoVersion,
    RedisEmptied,
    RedisRolledBack,
}

/// All faults that leave the register's data intact.
pub(crate) const WITH_REDIS: &[Fault] = &[
    Fault::PublisherCrashes,
    Fault::WorkerCrashes,
    Fault::PersonCrashes,
    Fault::Disconnect,
    Fault::LeaseRunsOut,
    Fault::GivesBack,
    Fault::ConfirmLost,
    Fault::AnswerLost,
    Fault::CallLate,
    Fault::NoVersion,
];

/// All faults.
pub(crate) const ALL: &[Fault] = &[
    Fault::PublisherCrashes,
    Fault::WorkerCrashes,
    Fault::PersonCrashes,
    Fault::Disconnect,
    Fault::LeaseRunsOut,
    Fault::GivesBack,
    Fault::ConfirmLost,
    Fault::AnswerLost,
    Fault::CallLate,
    Fault::NoVersion,
    Fault::RedisEmptied,
    Fault::RedisRolledBack,
];

/// The durations of a scenario in which time passes, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    pub(crate) dedup_retention: u8,
    pub(crate) backlog_retention: u8,
    pub(crate) max_wait: u8,
    /// The longest time by which a delivery comes late, unless an event runs.
    pub(crate) patience: u8,
}

/// A scenario.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// For each publisher, the events that it publishes one after the other. All events together are numbered from 0.
    pub(crate) programs: &'static [&'static [When]],
    /// The programs with two events, to explore more faults or in less time.
    pub(crate) two: &'static [&'static [When]],
    /// Returns the slot of an event by its date, and `None` if the event competes with no other.
    pub(crate) place: fn(When) -> Option<Place>,
    /// Whether only one event of the reference runs at a time.
    pub(crate) exclusive: bool,
    pub(crate) answers: &'static [Answer],
    pub(crate) answers_at_most: u8,
    pub(crate) actions: &'static [Action],
    pub(crate) kinds: &'static [Fault],
    pub(crate) faults: u8,
    pub(crate) max_attempts: u8,
    pub(crate) crash_limit: u32,
    pub(crate) time: Option<Time>,
    pub(crate) protocol: Protocol,
}

/// The protocol, or a mutant of it.
#[derive(Clone, Copy)]
pub(crate) struct Protocol {
    pub(crate) rules: &'static dyn Rules,
    pub(crate) order: Order,
    /// The difference between the generations of a dead letter and of the copy that failed.
    pub(crate) letter_generation: i64,
    /// Whether a worker has one token for all its claims.
    pub(crate) token_per_process: bool,
    /// Whether a cancel takes effect whenever it arrives, and not only as long as its caller waits for it.
    pub(crate) cancels_late: bool,
}

/// The real protocol.
pub(crate) const OURS: Protocol =
    Protocol { rules: &Ours, order: Order::OURS, letter_generation: 1, token_per_process: false, cancels_late: false };

impl Scenario {
    /// Returns the scenario with two events.
    pub(crate) fn of_two(self) -> Self {
        Self { programs: self.two, ..self }
    }

    /// Returns the scenario with the faults in which Redis loses data.
    pub(crate) fn forgetting(self) -> Self {
        Self { kinds: ALL, ..self }
    }

    pub(crate) fn forgets(&self) -> bool {
        self.allows(Fault::RedisEmptied) || self.allows(Fault::RedisRolledBack)
    }

    pub(crate) fn terms(&self) -> Terms {
        let ticks = |ticks: u8| Duration::from_secs(ticks.into());
        let (dedup_retention, max_wait) = match self.time {
            Some(time) => (ticks(time.dedup_retention), ticks(time.max_wait)),
            None => (Duration::MAX, Duration::MAX),
        };
        // A lease lasts until the step in which it runs out.
        Terms { exclusive: self.exclusive, lease: Duration::MAX, dedup_retention, max_wait }
    }

    pub(crate) fn backlog_retention(&self) -> Duration {
        self.time.map_or(Duration::MAX, |time| Duration::from_secs(time.backlog_retention.into()))
    }

    pub(crate) fn allows(&self, fault: Fault) -> bool {
        self.kinds.contains(&fault)
    }
}

fn latest(_: When) -> Option<Place> {
    Some(Place::Immediate)
}

fn first(_: When) -> Option<Place> {
    Some(Place::First)
}

fn dated(_: When) -> Option<Place> {
    Some(Place::Dated)
}

fn each_time(when: When) -> Option<Place> {
    match when {
        When::Now => Some(Place::Immediate),
        When::At(tick) => Some(Place::DatedAt(tick)),
    }
}

fn off(_: When) -> Option<Place> {
    None
}

use Answer::{DeadLetter, Requeue, Retry};
use When::{At, Now};

const UNTIMED: Scenario = Scenario {
    name: "",
    programs: &[&[Now, Now], &[Now]],
    two: &[&[Now], &[Now]],
    place: latest,
    exclusive: true,
    answers: &[Retry, DeadLetter, Requeue],
    answers_at_most: 1,
    actions: &[],
    kinds: WITH_REDIS,
    faults: 1,
    max_attempts: 2,
    crash_limit: 5,
    time: None,
    protocol: OURS,
};

/// Two publishers, two workers and three publishes in each mode, and any faults between any two steps.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "latest", ..UNTIMED },
    Scenario { name: "first", place: first, ..UNTIMED },
    Scenario { name: "dated, latest", place: dated, ..UNTIMED },
    Scenario {
        name: "dated, each time",
        place: each_time,
        programs: &[&[At(1), At(2)], &[At(1)]],
        two: &[&[At(1)], &[At(1)]],
        ..UNTIMED
    },
    Scenario { name: "off", place: off, exclusive: false, ..UNTIMED },
    Scenario {
        name: "mixed",
        place: each_time,
        programs: &[&[Now, At(1)], &[Now]],
        two: &[&[Now], &[At(1)]],
        ..UNTIMED
    },
];

/// Two publishes in several modes, and people who cancel, replay and reschedule.
pub(crate) const PEOPLE: &[Scenario] = &[
    Scenario {
        name: "latest, cancelled and replayed",
        programs: &[&[Now], &[Now]],
        actions: &[Action::CancelReference, Action::Replay],
        ..UNTIMED
    },
    Scenario {
        name: "latest, rescheduled and cancelled",
        programs: &[&[Now], &[Now]],
        actions: &[Action::CancelReference, Action::Reschedule],
        ..UNTIMED
    },
    Scenario {
        name: "latest, run now and a slot cancelled",
        programs: &[&[Now], &[Now]],
        actions: &[Action::RunNow, Action::CancelSlot(Place::Immediate)],
        ..UNTIMED
    },
    Scenario {
        name: "first, cancelled and replayed",
        place: first,
        programs: &[&[Now], &[Now]],
        actions: &[Action::CancelReference, Action::Replay],
        ..UNTIMED
    },
    Scenario {
        name: "first, replayed beside a retry",
        place: first,
        programs: &[&[Now], &[Now]],
        answers: &[Retry, DeadLetter],
        answers_at_most: 2,
        actions: &[Action::Replay],
        ..UNTIMED
    },
    Scenario {
        name: "first, rescheduled",
        place: first,
        programs: &[&[Now], &[Now]],
        actions: &[Action::Reschedule, Action::Later],
        ..UNTIMED
    },
    Scenario {
        name: "first, run now",
        place: first,
        programs: &[&[Now], &[Now]],
        actions: &[Action::RunNow],
        ..UNTIMED
    },
    Scenario {
        name: "mixed, a date cancelled",
        place: each_time,
        programs: &[&[Now], &[At(1)]],
        two: &[&[Now], &[At(1)]],
        actions: &[Action::CancelSlot(Place::DatedAt(1)), Action::CancelReference],
        ..UNTIMED
    },
    Scenario {
        name: "off, cancelled and shovelled back",
        place: off,
        exclusive: false,
        programs: &[&[Now], &[Now]],
        actions: &[Action::CancelEvent(0), Action::Shovel],
        ..UNTIMED
    },
];

const TIMED: Scenario = Scenario {
    place: dated,
    time: Some(Time { dedup_retention: 3, backlog_retention: 4, max_wait: 1, patience: 1 }),
    ..UNTIMED
};

/// Scenarios in which time passes: dates far apart, keys that expire, and streams that never pause.
pub(crate) const TIMES: &[Scenario] = &[
    Scenario { name: "dates far apart", programs: &[&[At(8), At(2)]], two: &[&[At(8), At(2)]], ..TIMED },
    Scenario {
        name: "dates put off and cancelled",
        programs: &[&[At(3)], &[At(2)]],
        two: &[&[At(3)], &[At(2)]],
        actions: &[Action::Later, Action::CancelReference],
        ..TIMED
    },
    Scenario { name: "first, put off", place: first, programs: &[&[Now], &[Now]], actions: &[Action::Later], ..TIMED },
    Scenario {
        name: "off, dates brought forward",
        place: off,
        exclusive: false,
        programs: &[&[At(8)]],
        two: &[&[At(8)]],
        actions: &[Action::RunNow, Action::Reschedule],
        ..TIMED
    },
    Scenario { name: "a stream within its window", place: latest, programs: &[&[Now, Now], &[Now]], ..TIMED },
];

//! Everything that can happen next.

use crate::scenario::{Answer, Fault};

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A publisher goes on, perhaps with a fault.
    Publisher(usize, Option<Fault>),
    /// A worker is delivered a message of the queue and claims it, perhaps with a fault.
    Claim {
        worker: usize,
        message: usize,
        fault: Option<Fault>,
    },
    /// It asks again with the same token, after a lost answer.
    ClaimAgain {
        worker: usize,
        task: usize,
    },
    /// It gives a delivery back, by its own fault or after a lost answer.
    GiveBack {
        worker: usize,
        task: usize,
        fault: Option<Fault>,
    },
    /// A handler ends; None is `Done`.
    Ends {
        worker: usize,
        task: usize,
        answer: Option<Answer>,
    },
    /// A worker does the next thing after a handler's end, perhaps with a fault.
    Effect {
        worker: usize,
        task: usize,
        fault: Option<Fault>,
    },
    WorkerCrashes(usize),
    Disconnects(usize),
    LeaseRunsOut {
        lease: usize,
        fault: Option<Fault>,
    },
    /// A call arrives whose caller has gone on.
    Arrives(usize),
    RedisEmptied,
    /// A replica of Redis follows no more.
    ReplicaStops,
    /// It becomes the master.
    RedisRolledBack,
    /// A person begins something, perhaps with a fault; the second is which letter or slot it is about.
    Acts {
        action: usize,
        about: usize,
        fault: Option<Fault>,
    },
    Person(Option<Fault>),
    PersonCrashes,
    /// Time passes.
    Tick,
}

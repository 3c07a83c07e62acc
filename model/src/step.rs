//! The steps that can happen next.

use crate::scenario::{Answer, Fault};

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A publisher does its next effect, perhaps with a fault.
    Publisher(usize, Option<Fault>),
    /// A worker gets a delivery from the queue and claims it, perhaps with a fault.
    Claim {
        worker: usize,
        message: usize,
        fault: Option<Fault>,
    },
    /// A worker repeats a claim with the same token, after a lost answer.
    ClaimAgain {
        worker: usize,
        task: usize,
    },
    /// A worker gives a delivery back, as a fault or after a lost answer.
    GiveBack {
        worker: usize,
        task: usize,
        fault: Option<Fault>,
    },
    /// A handler ends. No answer means `Done`.
    Ends {
        worker: usize,
        task: usize,
        answer: Option<Answer>,
    },
    /// A worker renews the lease of a running handler, and learns that its event was cancelled.
    Told {
        worker: usize,
        task: usize,
    },
    /// A worker does the next effect after a handler's end, perhaps with a fault.
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
    /// A call arrives whose caller no longer waits for it.
    Arrives(usize),
    RedisEmptied,
    /// A replica of Redis stops following its master.
    ReplicaStops,
    /// The replica becomes the master.
    RedisRolledBack,
    /// A person begins an action, perhaps with a fault. `about` is the index of the letter or slot.
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

//! The state of the world: what the broker, the register and everybody's memory hold.
//!
//! It is kept small and plain, for millions of it are compared. The register's part becomes a real
//! [`Shard`](hatchery::internals::register::state::Shard) for each call, see [`crate::register`].

use hatchery::internals::register::state::SlotState;

use crate::{
    account::Account,
    message::{Message, Place, Set, Tick},
    order::Effects,
};

/// The token of a call whose caller is gone.
pub(crate) const NOBODY: u8 = u8::MAX;

/// The register.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Register {
    pub(crate) slots: Vec<(Place, SlotState)>,
    pub(crate) leases: Vec<Lease>,
}

/// Whose lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Holder {
    Reference,
    Event(u8),
}

/// A lease. It lasts until the step that says it has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lease {
    pub(crate) holder: Holder,
    pub(crate) token: u8,
    pub(crate) place: Place,
    pub(crate) version: i64,
    pub(crate) generation: i64,
    pub(crate) fence: i64,
    pub(crate) crashes: u32,
}

/// Somebody who does one thing after the other: a worker with a delivery, or a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Doing {
    pub(crate) message: Message,
    /// The events that this run stands for.
    pub(crate) stands: Set,
    pub(crate) fence: i64,
    pub(crate) token: u8,
    /// What is left to do.
    pub(crate) todo: Effects,
    /// The version that was reserved for what comes again later, and the date.
    pub(crate) again: Option<(i64, Tick)>,
}

/// How far a claimed delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// The register has said yes, and the answer was lost.
    Unheard,
    /// The handler runs.
    Running,
    /// It has ended.
    Ended,
}

/// A delivery that a worker has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Task {
    pub(crate) phase: Phase,
    /// The connection it came by is there: the broker waits for the acknowledgement.
    pub(crate) delivery: bool,
    /// Its lease has run out.
    pub(crate) lost: bool,
    pub(crate) doing: Doing,
}

/// A call to the register that is still on its way, although its caller has gone on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Late {
    Record {
        event: u8,
        place: Place,
        version: i64,
        due: Tick,
    },
    Claim(Message),
    Settle {
        message: Message,
        fence: i64,
        end: Ending,
    },
    /// Which of the scenario's actions it is, and the events that it was asked for.
    Cancel {
        action: u8,
        asked: Set,
    },
}

/// What the register is told of a run's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ending {
    Finished,
    Copied(Tick),
}

/// A publisher, which publishes its program's events one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Publisher {
    /// How many it has begun.
    pub(crate) begun: u8,
    /// What is left to do for the last of them.
    pub(crate) todo: Effects,
}

/// An event as its publisher has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Event {
    pub(crate) place: Place,
    pub(crate) version: i64,
    pub(crate) due: Tick,
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Tick,
    /// The highest version given, as a number within its tick.
    pub(crate) given: i64,
    pub(crate) publishers: Vec<Publisher>,
    pub(crate) events: Vec<Event>,
    /// Queues and hatcheries: what may be delivered, in any order.
    pub(crate) queue: Vec<Message>,
    pub(crate) letters: Vec<Message>,
    pub(crate) workers: Vec<Vec<Task>>,
    pub(crate) person: Option<Person>,
    pub(crate) register: Register,
    /// Where a replica of Redis stopped to follow.
    pub(crate) replica: Option<Register>,
    pub(crate) late: Vec<Late>,
    /// Faults that may still come.
    pub(crate) faults: u8,
    /// Answers other than `Done` that handlers may still give.
    pub(crate) answers: u8,
    /// Actions of the scenario that were not taken yet, a bit for each.
    pub(crate) actions: u8,
    pub(crate) account: Account,
}

/// A person who changes something, step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Person {
    /// It is about a dead letter, which is acknowledged at the end.
    pub(crate) letter: bool,
    pub(crate) doing: Doing,
}

impl World {
    /// A token that nobody holds.
    pub(crate) fn fresh_token(&self) -> u8 {
        let tasks = self.workers.iter().flatten().map(|task| task.doing.token);
        let leases = self.register.leases.iter().chain(self.replica.iter().flat_map(|replica| &replica.leases));
        let tokens = tasks.chain(leases.map(|lease| lease.token));
        1 + tokens.filter(|token| *token != NOBODY).max().unwrap_or(0)
    }

    /// Whether a running program holds this token.
    pub(crate) fn is_alive(&self, token: u8) -> bool {
        self.workers.iter().flatten().any(|task| task.doing.token == token)
    }

    /// All that lies in the broker and may be delivered some day, and all that somebody holds.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &Message> {
        let tasks = self.workers.iter().flatten().map(|task| &task.doing.message);
        let person = self.person.iter().map(|person| &person.doing.message);
        self.queue.iter().chain(&self.letters).chain(tasks).chain(person)
    }
}

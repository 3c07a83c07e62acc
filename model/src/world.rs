//! A state of the world: the data of the broker and the register, and the memory of publishers, workers and people.
//!
//! It is small and plain, because the explorer compares millions of states. For each call the register's part becomes a
//! real [`Shard`](hatchery::internals::register::state::Shard), see [`crate::register`].

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

/// The holder of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Holder {
    Reference,
    Event(u8),
}

/// A lease. It lasts until the step in which it runs out.
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

/// The progress of a worker with a delivery, or of a person, through a list of effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Doing {
    pub(crate) message: Message,
    /// The events that this run stands for.
    pub(crate) stands: Set,
    pub(crate) fence: i64,
    pub(crate) token: u8,
    /// The effects that are left to do.
    pub(crate) todo: Effects,
    /// The version that was reserved for the requeue, and its date.
    pub(crate) again: Option<(i64, Tick)>,
}

/// The progress of a claimed delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// The register granted the claim, but its answer was lost.
    Unheard,
    /// The handler runs.
    Running,
    /// The handler has ended.
    Ended,
}

/// A delivery that a worker has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Task {
    pub(crate) phase: Phase,
    /// Whether the delivery's connection still exists, so that the broker waits for the acknowledgement.
    pub(crate) delivery: bool,
    /// Whether the lease has run out.
    pub(crate) lost: bool,
    pub(crate) doing: Doing,
}

/// A call to the register that has not arrived yet, although its caller no longer waits for it.
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
    /// A cancel: the index of the scenario's action, and the events that it was to cancel.
    Cancel {
        action: u8,
        asked: Set,
    },
}

/// The end of a run in a call of *settle*.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ending {
    Finished,
    Copied(Tick),
}

/// A publisher, which publishes its program's events one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Publisher {
    /// The number of events whose publish has begun.
    pub(crate) begun: u8,
    /// The effects that are left to do for the last of these events.
    pub(crate) todo: Effects,
}

/// An event in the memory of its publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Event {
    pub(crate) place: Place,
    pub(crate) version: i64,
    pub(crate) due: Tick,
}

/// A state of the world.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: Tick,
    /// The highest version that was given out, as a number within its tick.
    pub(crate) given: i64,
    pub(crate) publishers: Vec<Publisher>,
    pub(crate) events: Vec<Event>,
    /// The copies in queues and hatcheries. They may be delivered in any order.
    pub(crate) queue: Vec<Message>,
    pub(crate) letters: Vec<Message>,
    pub(crate) workers: Vec<Vec<Task>>,
    pub(crate) person: Option<Person>,
    pub(crate) register: Register,
    /// The data of a replica of Redis that has stopped following.
    pub(crate) replica: Option<Register>,
    pub(crate) late: Vec<Late>,
    /// The number of faults that may still happen.
    pub(crate) faults: u8,
    /// The number of answers other than `Done` that handlers may still give.
    pub(crate) answers: u8,
    /// The scenario's actions that were not taken yet, a bit for each.
    pub(crate) actions: u8,
    pub(crate) account: Account,
}

/// A person who changes something, step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Person {
    /// Whether the action is about a dead letter, which is acknowledged at the end.
    pub(crate) letter: bool,
    pub(crate) doing: Doing,
}

impl World {
    /// Returns a token that nobody holds.
    pub(crate) fn fresh_token(&self) -> u8 {
        let tasks = self.workers.iter().flatten().map(|task| task.doing.token);
        let leases = self.register.leases.iter().chain(self.replica.iter().flat_map(|replica| &replica.leases));
        let tokens = tasks.chain(leases.map(|lease| lease.token));
        1 + tokens.filter(|token| *token != NOBODY).max().unwrap_or(0)
    }

    /// Tells whether a running worker holds this token.
    pub(crate) fn is_alive(&self, token: u8) -> bool {
        self.workers.iter().flatten().any(|task| task.doing.token == token)
    }

    /// Returns all copies: those in the broker's queues, and those that a worker or a person holds.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &Message> {
        let tasks = self.workers.iter().flatten().map(|task| &task.doing.message);
        let person = self.person.iter().map(|person| &person.doing.message);
        self.queue.iter().chain(&self.letters).chain(tasks).chain(person)
    }
}

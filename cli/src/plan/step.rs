//! What changes an existing topology without losing an event: one step after the other, each safe to repeat.

use std::fmt;

use hatchery::internals::{
    compile::Binding,
    delay::{Ladder, Route},
    time::until,
    wire::{self, Incoming, Message},
    words::EventType,
};
use jiff::Timestamp;

use super::{Address, Kind, Object};

/// One step of a migration or of pruning.
///
/// Which steps come next is always read off the broker, so whoever is killed after any of them is simply run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Creates an exchange, a queue or a binding.
    Create(Object),
    /// Removes a binding.
    Unbind(Binding),
    /// Deletes an exchange that nothing leads to any more.
    DeleteExchange(String),
    /// Deletes a policy.
    DeletePolicy(String),
    /// Moves all that is in a queue.
    Move(Move),
    /// Deletes a queue that nothing leads to and nobody consumes, once it is provably empty.
    DeleteQueue {
        /// Its name.
        name: String,
        /// How long a message in it waits at most, in milliseconds; none for queues that are not timers.
        ttl_millis: Option<u64>,
    },
}

/// Messages on their way from one queue to another, each confirmed there before it is acknowledged here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The queue that they are in.
    pub from: String,
    /// The exchange that leads to the other queue alone, whatever the routing key.
    pub through: String,
    /// How events with a date go on with what remains of their wait; none where nothing waits for a date.
    pub dated: Option<Dated>,
    /// What goes then.
    pub then: Then,
}

/// What goes when everything is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The queue, once it is provably empty, with its consumers: nothing leads to it any more.
    DeleteQueue,
    /// The exchange that it was moved through, once nothing more is ready. The queue stays for those who consume it.
    DeleteExchange,
}

/// Where an event with a date waits on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dated {
    /// The scheduler.
    pub exchange: String,
    /// Its ladder.
    pub ladder: Ladder,
}

impl Move {
    /// The message that takes the place of this one: the same for whoever gets it. In a timer it would wait all over
    /// again, so one whose date is still ahead takes the ladder for what remains; every other is late rather than early.
    #[must_use]
    pub fn forward(&self, incoming: Incoming, now: Timestamp) -> Message {
        let (exchange, routing_key) = self.dated_way(&incoming, now).unwrap_or_else(|| {
            let key = incoming.routing_key.clone();
            (self.through.clone(), key)
        });
        Message { exchange, routing_key, properties: wire::foreign(incoming.properties), body: incoming.body }
    }

    fn dated_way(&self, incoming: &Incoming, now: Timestamp) -> Option<(String, String)> {
        let dated = self.dated.as_ref()?;
        let event_type: EventType = incoming.routing_key.split('.').next()?.parse().ok()?;
        let left = until(now, wire::nbf(incoming)?);
        let route = Route::after(left, &[], dated.ladder);
        (!left.is_zero()).then(|| (dated.exchange.clone(), route.key(&event_type)))
    }
}

impl Step {
    /// What it is about.
    #[must_use]
    pub fn address(&self) -> Address {
        match self {
            Self::Create(object) => object.address(),
            Self::DeleteExchange(name) => Address::new(Kind::Exchange, name),
            Self::DeleteQueue { name, .. } => Address::new(Kind::Queue, name),
            Self::Move(moving) => Address::new(Kind::Queue, &moving.from),
            Self::Unbind(binding) => Address::of_binding(binding),
            Self::DeletePolicy(name) => Address::new(Kind::Policy, name),
        }
    }

    /// Whether it has to wait for what other people's processes do.
    #[must_use]
    pub const fn is_long(&self) -> bool {
        matches!(self, Self::Move(_) | Self::DeleteQueue { .. })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self {
            Self::Create(_) => "create",
            Self::Unbind(_) => "unbind",
            Self::DeleteExchange(_) | Self::DeletePolicy(_) => "delete",
            Self::Move(_) => "move what is in",
            Self::DeleteQueue { .. } => "drain and delete",
        };
        write!(f, "{verb} {}", self.address())
    }
}

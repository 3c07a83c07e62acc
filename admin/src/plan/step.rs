//! Steps that change an existing topology without losing an event. They run one after the other, and each is safe to
//! repeat.

use std::fmt;

use hatchery::internals::{
    compile::{Binding, Exchange},
    delay::{Ladder, Route},
    time::until,
    wire::{self, Incoming, Message},
    words::EventType,
};
use jiff::Timestamp;

use super::{Address, Kind, Object};

/// One step of a migration or of pruning.
///
/// The next steps are always planned from the state of the broker. If `apply` is killed after any step, it can simply
/// be run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Creates an exchange, a queue or a binding.
    Create(Object),
    /// Deletes an exchange, declares it anew, and binds it again, all at once: meanwhile publishing to it fails, and what comes
    /// before its bindings goes to `unrouted`.
    Replace {
        /// The exchange as it should be.
        exchange: Exchange,
        /// Every binding from it or to it. Deleting it has removed them.
        bindings: Vec<Binding>,
    },
    /// Removes a binding.
    Unbind(Binding),
    /// Deletes an exchange that nothing leads to any more.
    DeleteExchange(String),
    /// Deletes a policy.
    DeletePolicy(String),
    /// Deletes a stream that nobody reads. Its messages are no events, and are never taken away.
    DeleteStream(String),
    /// Moves all messages of a queue.
    Move(Move),
    /// Deletes a queue without bindings and consumers, once it is provably empty.
    DeleteQueue {
        /// Its name.
        name: String,
        /// Its TTL in milliseconds, which is the longest that a message stays in it; `None` for a queue that is no
        /// timer.
        ttl_millis: Option<u64>,
    },
}

/// Moves messages from one queue to another. Each is confirmed there before it is acknowledged here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The queue that is emptied.
    pub from: String,
    /// The exchange that the messages are published to. It leads to the other queue, whatever the routing key.
    pub through: String,
    /// Where events whose date is still ahead are published instead; `None` for a queue whose messages wait for no
    /// date.
    pub dated: Option<Dated>,
    /// The objects that are deleted once all messages are moved.
    pub then: Then,
}

/// The object that is deleted after a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The queue, once it is provably empty, even if it has consumers: nothing leads to it any more.
    DeleteQueue,
    /// The exchange that the messages were moved through, once none is ready any more. The queue stays for its
    /// consumers.
    DeleteExchange,
}

/// The exchange and ladder for an event whose date is still ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dated {
    /// The scheduler.
    pub exchange: String,
    /// The ladder of the file.
    pub ladder: Ladder,
}

impl Move {
    /// Returns the message to publish in place of this one. An event whose date is still ahead takes the ladder for the
    /// remaining wait: put back into a timer it would wait the whole TTL again. Every other message goes through the
    /// exchange unchanged, and is late rather than early.
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
    /// Returns the address of the object that the step is about.
    #[must_use]
    pub fn address(&self) -> Address {
        match self {
            Self::Create(object) => object.address(),
            Self::DeleteExchange(name) | Self::Replace { exchange: Exchange { name, .. }, .. } => {
                Address::new(Kind::Exchange, name)
            }
            Self::DeleteQueue { name, .. } | Self::DeleteStream(name) => Address::new(Kind::Queue, name),
            Self::Move(moving) => Address::new(Kind::Queue, &moving.from),
            Self::Unbind(binding) => Address::of_binding(binding),
            Self::DeletePolicy(name) => Address::new(Kind::Policy, name),
        }
    }

    /// Whether the step may have to wait for consumers, publishers or TTLs.
    #[must_use]
    pub const fn is_long(&self) -> bool {
        matches!(self, Self::Move(_) | Self::DeleteQueue { .. })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self {
            Self::Create(_) => "create",
            Self::Replace { .. } => "replace",
            Self::Unbind(_) => "unbind",
            Self::DeleteExchange(_) | Self::DeletePolicy(_) | Self::DeleteStream(_) => "delete",
            Self::Move(_) => "move the messages of",
            Self::DeleteQueue { .. } => "drain and delete",
        };
        write!(f, "{verb} {}", self.address())
    }
}

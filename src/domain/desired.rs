//! The objects that must exist on the broker, as values.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use crate::domain::delay::Ladder;

/// The argument for a queue's delivery limit.
pub const LIMIT: &str = "x-delivery-limit";

/// The number of returns after which RabbitMQ itself dead-letters a message. It is only the last safeguard, because
/// RabbitMQ counts a crash against every prefetched message of the consumer (measured on 4.0 and 4.3).
pub const DELIVERY_LIMIT: i64 = 100;

/// A delivery limit that no message reaches. It works on every version; -1 does not, because RabbitMQ 3.10 takes it for
/// 0 (measured).
pub const NO_DELIVERY_LIMIT: i64 = 1_000_000_000;

/// The argument of a queue with a single active consumer: one consumes, and the others wait.
pub const SINGLE: &str = "x-single-active-consumer";

/// The argument that chooses the leader node of a quorum queue. It takes effect only when the queue is declared.
pub const LOCATOR: &str = "x-queue-leader-locator";

/// The argument that labels every object with its owner. RabbitMQ stores unknown arguments and never compares them
/// (measured).
pub const OWNER: &str = "x-hatchery-owner";

/// The type of the stream with the switches and of the one with the life of events. All other queues have the type that the file chooses.
pub const STREAM: &str = "stream";

/// The policy keys that limit what a stream keeps.
pub const RETENTION: [&str; 3] = ["max-age", "max-length-bytes", "stream-max-segment-size-bytes"];

/// All objects that must exist on the broker. A dead-letter target comes before the queues that lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The name of the topology, with which every object is labelled.
    pub owner: String,
    /// Durable topic exchanges.
    pub exchanges: Vec<Exchange>,
    /// Durable queues, all of one type, and the streams.
    pub queues: Vec<Queue>,
    /// Bindings from exchanges to queues and exchanges.
    pub bindings: Vec<Binding>,
    /// Policies for the settings that may change on an existing queue.
    pub policies: Vec<Policy>,
    /// The ladder.
    pub ladder: Ladder,
    /// The broker's acknowledgement timeout that the file assumes. No object sets it.
    pub ack_timeout: Duration,
    /// The former names of the topology. It also owns the objects that are labelled with one of them.
    pub former_owners: Vec<String>,
    /// Exchanges and queues that the topology owns without the label.
    pub adopted: BTreeSet<String>,
    /// The queues that were renamed.
    pub renames: Vec<Rename>,
}

#[cfg(feature = "internals")]
impl Desired {
    /// Returns whether the file asks for no queue of this name, and for none that had it before.
    #[must_use]
    pub fn has_left(&self, queue: &str) -> bool {
        self.queues.iter().all(|wanted| wanted.name != queue) && self.renames.iter().all(|rename| rename.from != queue)
    }

    /// Returns the topology's names, the former ones first.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        self.former_owners.iter().chain([&self.owner]).map(String::as_str)
    }
}

/// A queue that was renamed. The events of both names go to the new queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// The queue's former name.
    pub from: String,
    /// The queue's present name.
    pub to: String,
    /// The exchange that the former queue is bound to. It may belong to a former name of the topology.
    pub source: String,
    /// The routing key of that binding.
    pub key: String,
}

#[cfg(feature = "internals")]
impl Rename {
    /// Returns the binding that routes the former name's events to the queue.
    #[must_use]
    pub fn binding(&self) -> Binding {
        Binding { source: self.source.clone(), target: Target::Queue(self.to.clone()), key: self.key.clone() }
    }
}

/// A durable topic exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The name.
    pub name: String,
    /// The arguments.
    pub arguments: BTreeMap<String, Argument>,
}

/// A durable queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The name.
    pub name: String,
    /// The arguments.
    pub arguments: BTreeMap<String, Argument>,
}

impl Queue {
    /// Tells whether the queue is a stream, through which no event passes.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.arguments.get("x-queue-type").and_then(Argument::as_text) == Some(STREAM)
    }
}

/// An argument's value.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(untagged)]
pub enum Argument {
    /// Text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// A boolean.
    Flag(bool),
}

impl Argument {
    /// Returns the text, and `None` for a value of another kind.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(_) | Self::Flag(_) => None,
        }
    }
}

impl From<&Argument> for serde_json::Value {
    fn from(argument: &Argument) -> Self {
        match argument {
            Argument::Text(text) => text.as_str().into(),
            Argument::Number(number) => (*number).into(),
            Argument::Flag(flag) => (*flag).into(),
        }
    }
}

/// A binding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binding {
    /// The exchange that the binding leads from.
    pub source: String,
    /// The queue or exchange that the binding leads to.
    pub target: Target,
    /// The routing key: a pattern of words, with `*` for one word and `#` for any number.
    pub key: String,
}

/// An exchange or a queue, as the target of a binding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// An exchange.
    Exchange(String),
    /// A queue.
    Queue(String),
}

impl Target {
    /// Returns the name of the exchange or queue.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Exchange(name) | Self::Queue(name) => name,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exchange(name) => write!(f, "exchange {name}"),
            Self::Queue(name) => write!(f, "queue {name}"),
        }
    }
}

/// A policy. It has no label, so the topology owns it by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The name.
    pub name: String,
    /// A regular expression that matches the names of the queues.
    pub pattern: String,
    /// The settings of the policy.
    pub definition: BTreeMap<String, Argument>,
}

#[cfg(feature = "internals")]
impl Policy {
    /// The priority of owned policies. Of all policies that match a queue, RabbitMQ applies only the one with the highest
    /// priority, so it must be above that of general policies, which usually have priority 0.
    pub const PRIORITY: i64 = 100;

    /// The `apply-to` of owned policies. RabbitMQ 3.10 does not know `quorum_queues`.
    pub const APPLY_TO: &str = "queues";
}

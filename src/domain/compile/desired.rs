//! What must exist on the broker.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use crate::domain::delay::Ladder;

/// The argument of a queue for its limit of returns.
pub const LIMIT: &str = "x-delivery-limit";

/// Returns of a message before RabbitMQ itself puts it aside: the last net, because it counts every prefetched
/// neighbour of a crash (measured on 4.0 and 4.3).
pub const DELIVERY_LIMIT: i64 = 100;

/// As good as none, on every version: RabbitMQ 3.10 takes -1 for 0 (measured).
pub const NO_DELIVERY_LIMIT: i64 = 1_000_000_000;

/// The argument of a queue that has one consumer at a time, and its next one waits.
pub const SINGLE: &str = "x-single-active-consumer";

/// The argument of a quorum queue for the node that leads it. It counts where the queue is declared, and never afterwards.
pub const LOCATOR: &str = "x-queue-leader-locator";

/// The label on every object. RabbitMQ stores unknown arguments and never compares them (measured).
pub const OWNER: &str = "x-hatchery-owner";

/// Everything that must exist, dead-letter targets before those that lead to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// Whose it is.
    pub owner: String,
    /// Durable topic exchanges.
    pub exchanges: Vec<Exchange>,
    /// Durable queues, all of one type.
    pub queues: Vec<Queue>,
    /// From exchanges to queues and exchanges.
    pub bindings: Vec<Binding>,
    /// What may change on a queue that exists.
    pub policies: Vec<Policy>,
    /// The ladder.
    pub ladder: Ladder,
    /// How long the broker has to wait for an acknowledgement, which nothing here sets.
    pub ack_timeout: Duration,
    /// The names that the topology had before: what carries them as its label is its own too.
    pub former_owners: Vec<String>,
    /// Exchanges and queues that are its own without the label.
    pub adopted: BTreeSet<String>,
    /// Where the events of a queue go that has another name now.
    pub renames: Vec<Rename>,
}

impl Desired {
    /// Its names, those that it had before first.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        self.former_owners.iter().chain([&self.owner]).map(String::as_str)
    }
}

/// A queue that had another name before. Both names' events go to the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// The queue's former name.
    pub from: String,
    /// The queue.
    pub to: String,
    /// The exchange that the former name is bound to, which may be of a former topology.
    pub source: String,
    /// The binding's key.
    pub key: String,
}

impl Rename {
    /// What brings the former name's events to the queue.
    #[must_use]
    pub fn binding(&self) -> Binding {
        Binding { source: self.source.clone(), target: Target::Queue(self.to.clone()), key: self.key.clone() }
    }
}

/// A durable topic exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: BTreeMap<String, Argument>,
}

/// A durable queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: BTreeMap<String, Argument>,
}

/// An argument's value.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(untagged)]
pub enum Argument {
    /// Text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

impl Argument {
    /// The text, if it is one.
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
    /// The exchange that it leads from.
    pub source: String,
    /// Where it leads to.
    pub target: Target,
    /// A pattern of words, `*` for one and `#` for any number.
    pub key: String,
}

/// Where a binding leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// An exchange.
    Exchange(String),
    /// A queue.
    Queue(String),
}

impl Target {
    /// The name of the exchange or queue.
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

/// A policy that this topology owns by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// A regular expression on the queues' names.
    pub pattern: String,
    /// What it sets.
    pub definition: BTreeMap<String, Argument>,
}

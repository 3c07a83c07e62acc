//! A difference between the file and the broker, and the action of a plan on it.

use std::{fmt, time::Duration};

use hatchery::internals::{
    compile::{Binding, Exchange, Policy, Queue, Target},
    ttl::Ttl,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::live::LiveQueue;

/// A difference between the file and the broker.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The action of the plan on the object.
    pub action: Action,
    /// The object that differs.
    pub address: Address,
    /// The properties that differ, if the object exists.
    pub differences: Vec<Difference>,
    /// The reason, as text for the user.
    pub reason: Option<String>,
    /// The object to declare, or the leftover binding; `None` for every other change.
    pub object: Option<Object>,
    /// The object that this binding is created, migrated or removed with.
    pub part_of: Option<Address>,
    /// The option or key that the user must set, besides running `apply`.
    pub needs: Option<Need>,
    /// The number of messages in the queue, for a queue that is migrated or left over.
    pub held: Option<MessageCount>,
}

/// An option or key without which `apply` does not make a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// `--migrate`.
    Migrate,
    /// `--prune`.
    Prune,
    /// The key `adopt` in the file.
    Adopt,
}

impl Change {
    /// A change that `apply` writes.
    pub(super) fn write(action: Action, address: Address, object: Object) -> Self {
        Self {
            action,
            address,
            differences: Vec::new(),
            reason: None,
            object: Some(object),
            part_of: None,
            needs: None,
            held: None,
        }
    }

    /// A change that is only reported.
    pub(super) fn note(action: Action, address: Address, reason: String) -> Self {
        Self {
            action,
            address,
            differences: Vec::new(),
            reason: Some(reason),
            object: None,
            part_of: None,
            needs: None,
            held: None,
        }
    }
}

/// The action of a plan on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The object is missing and is created.
    Create,
    /// The object has drifted and is put back.
    Change,
    /// The queue cannot be changed in place. With `--migrate` its messages are moved to a new queue; without, it blocks
    /// the plan.
    Migrate,
    /// The object is owned and no longer in the file. It stays, unless `--prune` is given.
    Leftover,
    /// The object blocks the plan: nothing at all is written.
    Blocked,
    /// A warning that does not block the plan: another policy wins on owned queues, a binding with arguments still
    /// routes, or the broker waits less long for an acknowledgement than `ack-timeout`.
    Shadowing,
    /// The object is not owned, and is never touched.
    Ignored,
}

impl Action {
    /// Returns the sign at the beginning of the object's line in the output.
    #[must_use]
    pub const fn sign(self) -> char {
        match self {
            Self::Create => '+',
            Self::Change => '~',
            Self::Leftover => '-',
            Self::Migrate | Self::Blocked => '!',
            Self::Shadowing => '*',
            Self::Ignored => '?',
        }
    }
}

/// The kind and name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Address {
    /// Its kind.
    pub kind: Kind,
    /// Its name; for a binding `source -> target (key)`.
    pub name: String,
}

impl Address {
    /// Returns the address of an exchange, queue or policy.
    #[must_use]
    pub fn new(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }

    /// Returns the address of a binding.
    #[must_use]
    pub fn of_binding(binding: &Binding) -> Self {
        let Binding { source, target, key } = binding;
        Self { kind: Kind::Binding, name: format!("{source} -> {} ({key})", target.name()) }
    }

    /// Returns the address of the exchange or queue that a binding leads to.
    #[must_use]
    pub fn of_target(target: &Target) -> Self {
        match target {
            Target::Exchange(name) => Self::new(Kind::Exchange, name),
            Target::Queue(name) => Self::new(Kind::Queue, name),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An exchange.
    Exchange,
    /// A queue.
    Queue,
    /// A binding.
    Binding,
    /// A policy.
    Policy,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exchange => "exchange",
            Self::Queue => "queue",
            Self::Binding => "binding",
            Self::Policy => "policy",
        })
    }
}

/// An object that `apply` declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// An exchange.
    Exchange(Exchange),
    /// A queue.
    Queue(Queue),
    /// A binding.
    Binding(Binding),
    /// A policy.
    Policy(Policy),
}

impl Object {
    /// Returns the address of the object.
    #[must_use]
    pub fn address(&self) -> Address {
        match self {
            Self::Exchange(exchange) => Address::new(Kind::Exchange, &exchange.name),
            Self::Queue(queue) => Address::new(Kind::Queue, &queue.name),
            Self::Binding(binding) => Address::of_binding(binding),
            Self::Policy(policy) => Address::new(Kind::Policy, &policy.name),
        }
    }
}

/// A property whose value on the broker is not that of the file. `None` means that the property is not set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Difference {
    /// Its name.
    pub property: String,
    /// The value on the broker.
    pub before: Option<Value>,
    /// The value by the file.
    pub after: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<Value>| match value {
            None => "none".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        };
        write!(f, "{} {} -> {}", self.property, text(&self.before), text(&self.after))
    }
}

/// The number of messages in a queue, as far as the broker shows it. Its statistics are some seconds old, and missing
/// if they are disabled: a missing count is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Held")] // as `topology schema` names it
pub struct MessageCount {
    /// Messages ready for delivery.
    pub ready: Option<u64>,
    /// Messages delivered and not acknowledged.
    pub unacknowledged: Option<u64>,
    /// The TTL of the queue in milliseconds, which is the longest that a message stays in it; `None` if the queue has
    /// no TTL.
    pub at_most_ms: Option<u64>,
}

impl MessageCount {
    /// Returns the numbers of a queue; `None` for a stream, which holds no events.
    #[must_use]
    pub fn of(live: &LiveQueue) -> Option<Self> {
        let (ready, unacknowledged) = (live.messages_ready, live.messages_unacknowledged);
        (!live.is_stream()).then(|| Self { ready, unacknowledged, at_most_ms: live.ttl_millis() })
    }
}

/// `412 ready, 3 unacknowledged, at most 5m`.
impl fmt::Display for MessageCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ready {
            None => f.write_str("ready unknown")?,
            Some(ready) => write!(f, "{ready} ready")?,
        }
        if let Some(unacknowledged @ 1..) = self.unacknowledged {
            write!(f, ", {unacknowledged} unacknowledged")?;
        }
        match self.at_most_ms.and_then(|millis| Ttl::new(Duration::from_millis(millis)).ok()) {
            None => Ok(()),
            Some(ttl) => write!(f, ", at most {ttl}"),
        }
    }
}

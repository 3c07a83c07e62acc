//! One difference between the file and the broker.

use std::fmt;

use hatchery::internals::compile::{Binding, Exchange, Policy, Queue, Target};
use serde::Serialize;
use serde_json::Value;

use super::held::Held;

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What happens.
    pub action: Action,
    /// What it is about.
    pub address: Address,
    /// What differs, for an object that exists.
    pub differences: Vec<Difference>,
    /// Why, for people.
    pub reason: Option<String>,
    /// What to declare, or the binding that is left over; none for everything else.
    pub object: Option<Object>,
    /// The object that this binding comes or stays with.
    pub part_of: Option<Address>,
    /// What it takes, besides an `apply`.
    pub needs: Option<Need>,
    /// What a queue holds.
    pub held: Option<Held>,
}

/// What has to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// `--migrate`.
    Migrate,
    /// `--prune`.
    Prune,
    /// `adopt` in the file.
    Adopt,
}

impl Change {
    /// Something to be written.
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

    /// Something to be said.
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

/// What happens to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// It is missing, and is created.
    Create,
    /// It has drifted, and is put back.
    Change,
    /// It cannot be changed in place: its events are moved, if that is asked for. Else it stands in the way.
    Migrate,
    /// It is owned and no longer in the file. It stays, unless pruning is asked for.
    Leftover,
    /// It stands in the way: nothing at all is written.
    Blocked,
    /// Worth knowing, and nothing that stands in the way: a stranger's policy wins on owned queues, or the broker waits
    /// less long for an acknowledgement than the file counts on.
    Shadowing,
    /// Not owned, and never touched.
    Ignored,
}

impl Action {
    /// The sign in front of the line.
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

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Address {
    /// Its kind.
    pub kind: Kind,
    /// Its name; for a binding its ends and its key.
    pub name: String,
}

impl Address {
    /// Names an object.
    #[must_use]
    pub fn new(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }

    /// Names a binding.
    #[must_use]
    pub fn of_binding(binding: &Binding) -> Self {
        let Binding { source, target, key } = binding;
        Self { kind: Kind::Binding, name: format!("{source} -> {} ({key})", target.name()) }
    }

    /// Names what a binding leads to.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
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

/// What is to be declared.
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
    /// Names it.
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

/// One property that differs; none is an absent one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Its name.
    pub property: String,
    /// What the broker has.
    pub before: Option<Value>,
    /// What the file says.
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

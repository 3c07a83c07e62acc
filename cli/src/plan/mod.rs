//! The file against the broker: what to create, what to put back, and what stands in the way.
//!
//! Nothing is written from here. A plan is a value; the one who carries it out takes its objects in their order.

mod bindings;
mod compare;
mod destroy;
mod diff;
mod leftover;
mod migrate;
mod patience;
mod policies;
mod prune;
mod shadow;
mod step;
mod view;

use std::{collections::BTreeSet, fmt};

pub use destroy::{Destruction, destruction};
pub use diff::plan;
use hatchery::internals::{
    compile::{Binding, Exchange, Policy, Queue, Target},
    names,
    words::EventType,
};
pub use leftover::Held;
use serde::Serialize;
use serde_json::Value;
pub use step::{Dated, Move, Step, Then};

/// The priority of our policies. Of all policies that match a queue the highest applies, alone, so ours has to be above
/// the house rules that people give 0.
pub const PRIORITY: i64 = 100;

/// What our policies apply to. RabbitMQ 3.10 knows no `quorum_queues`.
pub const APPLY_TO: &str = "queues";

/// Ordered changes: dead-letter targets before what leads to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Whose plan it is.
    pub owner: String,
    /// Everything that differs.
    pub changes: Vec<Change>,
    /// What comes next of the migrations, where they are asked for. Afterwards it is planned again.
    pub migration: Vec<Step>,
    /// What comes next of pruning, where it is asked for. Afterwards it is planned again.
    pub pruning: Vec<Step>,
}

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
    fn write(action: Action, address: Address, object: Object) -> Self {
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
    fn note(action: Action, address: Address, reason: String) -> Self {
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

/// How many there are of each. A binding that comes or stays with an object counts with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// To be created.
    pub add: usize,
    /// To be put back.
    pub change: usize,
    /// To be migrated.
    pub migrate: usize,
    /// Owned, and no longer in the file.
    pub leftover: usize,
    /// In the way.
    pub blocked: usize,
    /// Strangers' policies that win on owned queues, and do no harm.
    pub shadowing: usize,
    /// Not owned.
    pub ignored: usize,
}

impl Plan {
    /// How many there are of each.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for change in self.changes.iter().filter(|change| change.part_of.is_none()) {
            *match change.action {
                Action::Create => &mut counts.add,
                Action::Change => &mut counts.change,
                Action::Migrate => &mut counts.migrate,
                Action::Leftover => &mut counts.leftover,
                Action::Blocked => &mut counts.blocked,
                Action::Shadowing => &mut counts.shadowing,
                Action::Ignored => &mut counts.ignored,
            } += 1;
        }
        counts
    }

    /// Whether something stands in the way, so that nothing may be written; what can be migrated too, unless that is
    /// asked for.
    #[must_use]
    pub fn is_blocked(&self, migrate: bool) -> bool {
        self.has(Action::Blocked) || (!migrate && self.has(Action::Migrate))
    }

    /// Adds what stands in the way of all of it: somebody else has the same keys in Redis.
    pub fn block(&mut self, why: &str) {
        let unrouted = Address::new(Kind::Exchange, &names::unrouted(&self.owner));
        self.changes.push(Change::note(Action::Blocked, unrouted, format!("blocked: {why}")));
    }

    fn has(&self, action: Action) -> bool {
        self.changes.iter().any(|change| change.action == action)
    }

    /// The types that the broker has bindings or queues of, and that the file does not ask for. Their names are those that
    /// their events carry; a type of the file is among them where it had another name.
    #[must_use]
    pub fn left_types(&self) -> BTreeSet<EventType> {
        let leftover = self.changes.iter().filter(|change| change.action == Action::Leftover);
        let of_type = leftover.filter_map(|change| match &change.object {
            Some(Object::Binding(binding)) if names::is_processor(&binding.source) => binding.key.strip_suffix(".#"),
            _ if change.address.kind == Kind::Queue => names::type_of(&change.address.name),
            _ => None,
        });
        of_type.filter_map(|name| name.parse().ok()).collect()
    }

    /// Whether the broker is as the file says. Leftovers stay bound and working, so they don't count.
    #[must_use]
    pub fn in_sync(&self) -> bool {
        !self.is_blocked(false) && self.to_write().next().is_none()
    }

    /// What is to be written, in this order: policies, then all of `unrouted`, then the rest as it stands here. Whoever
    /// publishes to an exchange that has no bindings yet must find the alternate exchange at work: measured, a publisher's
    /// events were confirmed and gone.
    pub fn to_write(&self) -> impl Iterator<Item = &Change> {
        let unrouted = names::unrouted(&self.owner);
        let is_written = |change: &&Change| matches!(change.action, Action::Create | Action::Change);
        let mut changes: Vec<&Change> = self.changes.iter().filter(is_written).collect();
        changes.sort_by_key(|change| match &change.object {
            Some(Object::Policy(_)) => 0,
            Some(Object::Binding(binding)) if binding.source == unrouted => 1,
            _ if change.address.name == unrouted => 1,
            _ => 2,
        });
        changes.into_iter()
    }
}

#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod tests;

//! What must exist and what does, by name.

use std::collections::{BTreeMap, BTreeSet};

use hatchery::internals::{
    compile::{Binding, Desired, Exchange, OWNER, Queue, Target},
    names,
};
use serde_json::Value;

use super::{Address, Difference, Kind, compare};
use crate::observed::{Arguments, LiveBinding, LiveExchange, LiveQueue, Observed};

pub(super) struct View<'a> {
    pub(super) desired: &'a Desired,
    pub(super) observed: &'a Observed,
    exchanges: BTreeMap<&'a str, &'a LiveExchange>,
    queues: BTreeMap<&'a str, &'a LiveQueue>,
    wanted_exchanges: BTreeMap<&'a str, &'a Exchange>,
    wanted_queues: BTreeMap<&'a str, &'a Queue>,
    /// By what they lead to; those of the default exchange are the broker's own.
    leading_to: BTreeMap<Address, Vec<&'a LiveBinding>>,
}

/// How a queue that must exist is found.
pub(super) enum State {
    Missing,
    /// It is there, and not ours.
    Foreign(String),
    /// It is ours, and differs in what RabbitMQ cannot change.
    Wrong(Vec<Difference>),
    Right,
}

impl<'a> View<'a> {
    pub(super) fn new(desired: &'a Desired, observed: &'a Observed) -> Self {
        let mut leading_to: BTreeMap<Address, Vec<&LiveBinding>> = BTreeMap::new();
        for binding in observed.bindings.iter().filter(|binding| !binding.source.is_empty()) {
            leading_to.entry(target(binding)).or_default().push(binding);
        }
        Self {
            desired,
            observed,
            exchanges: observed.exchanges.iter().map(|live| (live.name.as_str(), live)).collect(),
            queues: observed.queues.iter().map(|live| (live.name.as_str(), live)).collect(),
            wanted_exchanges: desired.exchanges.iter().map(|wanted| (wanted.name.as_str(), wanted)).collect(),
            wanted_queues: desired.queues.iter().map(|wanted| (wanted.name.as_str(), wanted)).collect(),
            leading_to,
        }
    }

    pub(super) fn exchange(&self, name: &str) -> Option<&'a LiveExchange> {
        self.exchanges.get(name).copied()
    }

    pub(super) fn queue(&self, name: &str) -> Option<&'a LiveQueue> {
        self.queues.get(name).copied()
    }

    pub(super) fn wanted_queue(&self, name: &str) -> Option<&'a Queue> {
        self.wanted_queues.get(name).copied()
    }

    /// Whether the file asks for it.
    pub(super) fn wants(&self, address: &Address) -> bool {
        match address.kind {
            Kind::Exchange => self.wanted_exchanges.contains_key(address.name.as_str()),
            Kind::Queue => self.wanted_queues.contains_key(address.name.as_str()),
            Kind::Binding | Kind::Policy => false,
        }
    }

    /// The bindings that lead to a queue.
    pub(super) fn to_queue(&self, name: &str) -> &[&'a LiveBinding] {
        self.to(&Address::new(Kind::Queue, name))
    }

    /// The bindings that lead to an exchange or queue.
    pub(super) fn to(&self, address: &Address) -> &[&'a LiveBinding] {
        self.leading_to.get(address).map_or(&[], Vec::as_slice)
    }

    /// Whether there is such a binding.
    pub(super) fn is_bound(&self, binding: &Binding) -> bool {
        self.to(&Address::of_target(&binding.target)).iter().any(|live| plain(live).as_ref() == Some(binding))
    }

    /// Whose label an object carries.
    pub(super) fn label(arguments: &Arguments) -> Option<&str> {
        arguments.get(OWNER).and_then(Value::as_str)
    }

    /// Whether an object is this topology's: by its label, by the label of a name it had before, or adopted.
    pub(super) fn owns(&self, name: &str, arguments: &Arguments) -> bool {
        match Self::label(arguments) {
            Some(label) => self.desired.owners().any(|owner| owner == label),
            None => self.desired.adopted.contains(name),
        }
    }

    /// Every exchange and queue that is this topology's.
    pub(super) fn owned(&self) -> BTreeSet<Address> {
        let exchanges = self.observed.exchanges.iter().map(|live| (Kind::Exchange, &live.name, &live.arguments));
        let queues = self.observed.queues.iter().map(|live| (Kind::Queue, &live.name, &live.arguments));
        exchanges
            .chain(queues)
            .filter(|(_, name, arguments)| self.owns(name, arguments))
            .map(|(kind, name, _)| Address::new(kind, name))
            .collect()
    }

    /// Why an object that must exist and does is not ours; none where it is.
    pub(super) fn foreign(&self, name: &str, arguments: &Arguments) -> Option<String> {
        if self.owns(name, arguments) {
            return None;
        }
        Some(match Self::label(arguments) {
            None => format!("not owned by {}", self.desired.owner),
            Some(other) => format!("owned by {other}"),
        })
    }

    pub(super) fn state(&self, queue: &Queue) -> State {
        let Some(live) = self.queue(&queue.name) else { return State::Missing };
        if let Some(whose) = self.foreign(&live.name, &live.arguments) {
            return State::Foreign(whose);
        }
        match compare::queue(&queue.arguments, live) {
            differences if differences.is_empty() => State::Right,
            differences => State::Wrong(differences),
        }
    }

    /// The queue that an object of this name stands in for, if it is one of a migration's, under whatever name of the
    /// topology.
    pub(super) fn stands_in_for<'n>(&self, name: &'n str) -> Option<&'n str> {
        self.desired.owners().find_map(|owner| names::moved(owner, name))
    }

    /// The name of what stands in for a queue while it is migrated, if that is there.
    pub(super) fn stand_in(&self, queue: &str) -> Option<String> {
        let name = names::moving(&self.desired.owner, queue);
        (self.queue(&name).is_some() || self.exchange(&name).is_some()).then_some(name)
    }
}

/// The binding, unless it has arguments: ours have none.
pub(super) fn plain(live: &LiveBinding) -> Option<Binding> {
    live.arguments.is_empty().then(|| any(live))
}

/// The binding without its arguments: a topic exchange ignores them, but they make it another binding.
pub(super) fn any(live: &LiveBinding) -> Binding {
    let name = live.destination.clone();
    let target = if live.destination_type == "exchange" { Target::Exchange(name) } else { Target::Queue(name) };
    Binding { source: live.source.clone(), target, key: live.routing_key.clone() }
}

/// What a binding leads to.
pub(super) fn target(live: &LiveBinding) -> Address {
    Address::of_target(&any(live).target)
}

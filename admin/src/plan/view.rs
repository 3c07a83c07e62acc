//! The objects that must exist and those that do, indexed by name.

use std::collections::{BTreeMap, BTreeSet};

use hatchery::internals::compile::{Binding, Desired, Exchange, Queue, Target};

use super::{Address, Difference, Kind, Need, compare};
use crate::{
    live::{Arguments, LiveBinding, LiveExchange, LiveQueue, Observed, is_labelled, label},
    names,
};

pub(super) struct View<'a> {
    pub(super) desired: &'a Desired,
    pub(super) observed: &'a Observed,
    exchanges: BTreeMap<&'a str, &'a LiveExchange>,
    queues: BTreeMap<&'a str, &'a LiveQueue>,
    wanted_exchanges: BTreeMap<&'a str, &'a Exchange>,
    wanted_queues: BTreeMap<&'a str, &'a Queue>,
    /// The bindings by target, without those of the default exchange, which are RabbitMQ's own.
    leading_to: BTreeMap<Address, Vec<&'a LiveBinding>>,
}

/// The state of a queue that must exist.
pub(super) enum QueueState {
    Missing,
    /// The queue exists and is not owned, with the reason and what would make it owned.
    Foreign(String, Option<Need>),
    /// The queue is owned and differs in properties that RabbitMQ cannot change.
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

    /// Whether the file asks for this exchange or queue.
    pub(super) fn wants(&self, address: &Address) -> bool {
        match address.kind {
            Kind::Exchange => self.wanted_exchanges.contains_key(address.name.as_str()),
            Kind::Queue => self.wanted_queues.contains_key(address.name.as_str()),
            Kind::Binding | Kind::Policy => false,
        }
    }

    /// Returns the bindings that lead to a queue.
    pub(super) fn to_queue(&self, name: &str) -> &[&'a LiveBinding] {
        self.to(&Address::new(Kind::Queue, name))
    }

    /// Returns the bindings that lead to an exchange or queue.
    pub(super) fn to(&self, address: &Address) -> &[&'a LiveBinding] {
        self.leading_to.get(address).map_or(&[], Vec::as_slice)
    }

    /// Whether this binding exists.
    pub(super) fn is_bound(&self, binding: &Binding) -> bool {
        self.to(&Address::of_target(&binding.target)).iter().any(|live| plain(live).as_ref() == Some(binding))
    }

    /// Whether this topology owns an object: by its label, by the label of a former name, or because the file adopts
    /// it.
    pub(super) fn owns(&self, name: &str, arguments: &Arguments) -> bool {
        is_labelled(self.desired, arguments) || label(arguments).is_none() && self.desired.adopted.contains(name)
    }

    /// Returns every exchange and queue that this topology owns.
    pub(super) fn owned(&self) -> BTreeSet<Address> {
        let exchanges = self.observed.exchanges.iter().map(|live| (Kind::Exchange, &live.name, &live.arguments));
        let queues = self.observed.queues.iter().map(|live| (Kind::Queue, &live.name, &live.arguments));
        exchanges
            .chain(queues)
            .filter(|(_, name, arguments)| self.owns(name, arguments))
            .map(|(kind, name, _)| Address::new(kind, name))
            .collect()
    }

    /// Returns why an existing object is not owned, and what would make it owned; `None` if it is owned.
    pub(super) fn foreign(&self, name: &str, arguments: &Arguments) -> Option<(String, Option<Need>)> {
        if self.owns(name, arguments) {
            return None;
        }
        Some(match label(arguments) {
            None => (format!("not owned by {}", self.desired.owner), Some(Need::Adopt)),
            // An object with the label of another topology cannot be adopted.
            Some(other) => (format!("owned by {other}"), None),
        })
    }

    pub(super) fn state(&self, queue: &Queue) -> QueueState {
        let Some(live) = self.queue(&queue.name) else { return QueueState::Missing };
        if let Some((whose, needs)) = self.foreign(&live.name, &live.arguments) {
            return QueueState::Foreign(whose, needs);
        }
        match compare::queue(&queue.arguments, live) {
            differences if differences.is_empty() => QueueState::Right,
            differences => QueueState::Wrong(differences),
        }
    }

    /// Returns the queue that a queue or exchange of this name stands in for, if the name is that of a migration, under
    /// any name of the topology.
    pub(super) fn stands_in_for<'n>(&self, name: &'n str) -> Option<&'n str> {
        self.desired.owners().find_map(|owner| names::moved(owner, name))
    }

    /// Returns the name of the stand-in of a queue, if its queue or exchange exists.
    pub(super) fn stand_in(&self, queue: &str) -> Option<String> {
        let name = names::moving(&self.desired.owner, queue);
        (self.queue(&name).is_some() || self.exchange(&name).is_some()).then_some(name)
    }
}

/// Returns the binding, unless it has arguments: owned bindings have none.
pub(super) fn plain(live: &LiveBinding) -> Option<Binding> {
    live.arguments.is_empty().then(|| any(live))
}

/// Returns the binding without its arguments. A topic exchange ignores them, but they make it another binding.
pub(super) fn any(live: &LiveBinding) -> Binding {
    let name = live.destination.clone();
    let target = if live.destination_type == "exchange" { Target::Exchange(name) } else { Target::Queue(name) };
    Binding { source: live.source.clone(), target, key: live.routing_key.clone() }
}

/// Returns the exchange or queue that a binding leads to.
pub(super) fn target(live: &LiveBinding) -> Address {
    Address::of_target(&any(live).target)
}

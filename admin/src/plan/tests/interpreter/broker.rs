//! An in-memory broker: exchanges, queues and their messages. It refuses what RabbitMQ refuses.

use std::collections::{BTreeMap, BTreeSet};

use hatchery::internals::{
    compile::{Argument, Desired, OWNER, Target},
    memory::queues::route::Routes,
    wire::{Incoming, Properties},
};
use jiff::Timestamp;

use super::super::{Move, Object};
use crate::live::Observed;

/// A message, identified by a number.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::plan) struct Message {
    pub(in crate::plan) id: u32,
    pub(in crate::plan) key: String,
    /// Its properties and headers.
    pub(in crate::plan) properties: Properties,
    /// The timers whose TTL it has spent since it was published or moved.
    left: BTreeSet<String>,
}

/// Exchanges, queues and their messages.
#[derive(Clone, Debug)]
pub(in crate::plan) struct Broker {
    /// Its exchanges, queues, bindings and policies, as a compiled file describes them.
    pub(in crate::plan) there: Desired,
    /// The messages by queue, oldest first.
    pub(in crate::plan) contents: BTreeMap<String, Vec<Message>>,
    /// Queues that a worker consumes.
    pub(in crate::plan) consumed: BTreeSet<String>,
    /// The messages that were published, and below those that a worker has acknowledged.
    pub(in crate::plan) published: BTreeSet<u32>,
    pub(in crate::plan) handled: BTreeSet<u32>,
}

/// A violated invariant, as text.
pub(in crate::plan) type Wrong = String;

impl Broker {
    /// Creates a broker with these objects and no message.
    pub(in crate::plan) fn new(there: Desired) -> Self {
        Self {
            there,
            contents: BTreeMap::new(),
            consumed: BTreeSet::new(),
            published: BTreeSet::new(),
            handled: BTreeSet::new(),
        }
    }

    /// Returns the state as the management API shows it.
    pub(in crate::plan) fn observe(&self) -> Observed {
        let mut observed = Observed::from(&self.there);
        for queue in &mut observed.queues {
            let ready = Some(self.contents.get(&queue.name).map_or(0, Vec::len) as u64);
            (queue.messages_ready, queue.messages) = (ready, ready);
            queue.consumers = Some(u64::from(self.consumed.contains(&queue.name)));
        }
        observed
    }

    pub(in crate::plan) fn has_exchange(&self, name: &str) -> bool {
        self.there.exchanges.iter().any(|exchange| exchange.name == name)
    }

    pub(in crate::plan) fn has_queue(&self, name: &str) -> bool {
        self.there.queues.iter().any(|queue| queue.name == name)
    }

    /// Returns the dead-letter exchange of a queue with a TTL; `None` for any other queue.
    fn timer(&self, name: &str) -> Option<&str> {
        let queue = self.there.queues.iter().find(|queue| queue.name == name)?;
        queue.arguments.get("x-message-ttl")?;
        queue.arguments.get("x-dead-letter-exchange")?.as_text()
    }

    /// Publishes an event. If the exchange does not exist, nothing is published: RabbitMQ would report that to the
    /// publisher.
    pub(in crate::plan) fn publish(&mut self, exchange: &str, key: &str, properties: Properties) -> Result<(), Wrong> {
        if !self.has_exchange(exchange) {
            return Ok(());
        }
        let id = u32::try_from(self.published.len()).unwrap_or(u32::MAX);
        self.published.insert(id);
        self.route(exchange, &Message { id, key: key.to_owned(), properties, left: BTreeSet::new() }).map(drop)
    }

    /// Puts a message into each queue that it reaches, and returns their names.
    fn route(&mut self, exchange: &str, message: &Message) -> Result<BTreeSet<String>, Wrong> {
        let all: BTreeSet<String> =
            Routes::new(&self.there).of(exchange, &message.key).into_iter().map(str::to_owned).collect();
        let targets: BTreeSet<String> = all.difference(&message.left).cloned().collect();
        if targets.is_empty() {
            return Err(format!("{} from {exchange} is dropped: it reaches {all:?}", message.key));
        }
        for queue in &targets {
            self.contents.entry(queue.clone()).or_default().push(message.clone());
        }
        Ok(targets)
    }

    /// Expires every message in this timer.
    pub(in crate::plan) fn expire(&mut self, queue: &str) -> Result<(), Wrong> {
        let Some(exchange) = self.timer(queue).map(str::to_owned) else { return Ok(()) };
        for mut message in self.contents.remove(queue).unwrap_or_default() {
            message.left.insert(queue.to_owned());
            self.route(&exchange, &message).map_err(|wrong| format!("expired in {queue}: {wrong}"))?;
        }
        Ok(())
    }

    /// Acknowledges every message in a queue, as a worker or a person would.
    pub(in crate::plan) fn handle(&mut self, queue: &str) {
        self.handled.extend(self.contents.remove(queue).unwrap_or_default().iter().map(|message| message.id));
    }

    /// Returns the queues that an event ends in, after it has passed all timers on its way.
    pub(in crate::plan) fn ends(&self, routes: &Routes, exchange: &str, key: &str) -> Result<BTreeSet<String>, Wrong> {
        let (mut ends, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut left = vec![exchange.to_owned()];
        while let Some(exchange) = left.pop() {
            let queues = routes.of(&exchange, key);
            if queues.is_empty() {
                return Err(format!("{key} is dropped by {exchange}"));
            }
            for queue in queues {
                match self.timer(queue) {
                    None => drop(ends.insert(queue.to_owned())),
                    Some(_) if !seen.insert(queue) => return Err(format!("{key} comes back to {queue}")),
                    Some(next) => left.push(next.to_owned()),
                }
            }
        }
        Ok(ends)
    }

    /// Declares one object, as RabbitMQ would.
    pub(in crate::plan) fn create(&mut self, object: &Object) -> Result<(), Wrong> {
        let same = |one: &BTreeMap<String, Argument>, other: &BTreeMap<String, Argument>| {
            let compared = |it: &BTreeMap<String, Argument>| {
                it.iter().filter(|(name, _)| *name != OWNER).map(|(n, v)| (n.clone(), v.clone())).collect::<Vec<_>>()
            };
            compared(one) == compared(other)
        };
        let refused = || format!("406: {} is there with other arguments", object.address());
        match object {
            Object::Exchange(new) => match self.there.exchanges.iter().find(|it| it.name == new.name) {
                None => self.there.exchanges.push(new.clone()),
                Some(live) if same(&live.arguments, &new.arguments) => {}
                Some(_) => return Err(refused()),
            },
            Object::Queue(new) => match self.there.queues.iter().find(|it| it.name == new.name) {
                None => self.there.queues.push(new.clone()),
                Some(live) if same(&live.arguments, &new.arguments) => {}
                Some(_) => return Err(refused()),
            },
            Object::Binding(new) => {
                let target = match &new.target {
                    Target::Exchange(name) => self.has_exchange(name),
                    Target::Queue(name) => self.has_queue(name),
                };
                if !target || !self.has_exchange(&new.source) {
                    return Err(format!("404: an end of {} is missing", object.address()));
                }
                if !self.there.bindings.contains(new) {
                    self.there.bindings.push(new.clone());
                }
            }
            Object::Policy(new) => {
                self.there.policies.retain(|it| it.name != new.name);
                self.there.policies.push(new.clone());
            }
        }
        Ok(())
    }

    /// Deletes an exchange. RabbitMQ would delete one that is in use too, and messages for it would be lost, so that is
    /// an error here.
    pub(super) fn delete_exchange(&mut self, name: &str) -> Result<(), Wrong> {
        let leads = |arguments: &BTreeMap<String, Argument>, by: &str| {
            arguments.get(by).and_then(Argument::as_text) == Some(name)
        };
        let there = &self.there;
        if there.queues.iter().any(|queue| leads(&queue.arguments, "x-dead-letter-exchange"))
            || there.exchanges.iter().any(|it| it.name != name && leads(&it.arguments, "alternate-exchange"))
            || there.bindings.iter().any(|binding| binding.target == Target::Exchange(name.to_owned()))
        {
            return Err(format!("exchange {name} is deleted, and something still leads to it"));
        }
        self.there.exchanges.retain(|exchange| exchange.name != name);
        self.there.bindings.retain(|binding| binding.source != name);
        Ok(())
    }

    /// Deletes a queue. The real adapter deletes without `if-empty`, which quorum queues do not support, after it has
    /// checked the counts; so a queue with messages is an error here.
    pub(super) fn delete_queue(&mut self, name: &str) -> Result<(), Wrong> {
        let target = Target::Queue(name.to_owned());
        if let Some(binding) = self.there.bindings.iter().find(|binding| binding.target == target) {
            return Err(format!("queue {name} is deleted, and {} still leads to it", binding.source));
        }
        if self.contents.get(name).is_some_and(|held| !held.is_empty()) {
            return Err(format!("queue {name} is deleted with its messages"));
        }
        self.there.queues.retain(|queue| queue.name != name);
        self.consumed.remove(name);
        Ok(())
    }

    /// Moves all messages of a queue.
    pub(super) fn move_all(&mut self, step: &Move) -> Result<(), Wrong> {
        for message in self.contents.remove(&step.from).unwrap_or_default() {
            let Message { id, key, properties, .. } = message;
            let incoming = Incoming { routing_key: key, properties, body: Vec::new().into() };
            let sent = step.forward(incoming, Timestamp::UNIX_EPOCH);
            let message = Message { id, key: sent.routing_key, properties: sent.properties, left: BTreeSet::new() };
            let reached =
                self.route(&sent.exchange, &message).map_err(|wrong| format!("moved from {}: {wrong}", step.from))?;
            if reached.contains(&step.from) {
                return Err(format!("the messages of {} are moved in a circle", step.from));
            }
        }
        Ok(())
    }
}

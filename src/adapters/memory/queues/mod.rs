//! RabbitMQ's rules for routing, TTLs, dead letters and returned deliveries, small enough to be read in one go.
//!
//! There is no I/O and no clock: the caller gives the time, in milliseconds. The in-memory broker runs a compiled
//! topology with these rules. The tests of this repository send random events through a real broker and through these
//! rules, and compare where the events end.

mod message;
mod queue;
pub mod route;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::Arc,
};

pub use self::message::{Death, Message};
use self::{
    queue::{Forwarding, Kind, Limit, Queue},
    route::Routes,
};
use crate::domain::compile::Desired;
#[cfg(any(test, feature = "internals"))]
use crate::domain::compile::Rename;

/// The number of messages that the dead-letter process of an at-least-once queue holds at a time.
const IN_FLIGHT: usize = 32;

/// How long the dead-letter process waits before it offers a message again to a target that refused it, in
/// milliseconds.
#[cfg(any(test, feature = "internals"))]
const AGAIN: u64 = 180_000;

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "expired",
            Self::MaxLength => "maxlen",
            Self::DeliveryLimit => "delivery_limit",
            Self::Rejected => "rejected",
        })
    }
}

/// Why a message was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No binding takes it, and there is no alternate exchange.
    Unroutable,
    /// Without a rejection it would come back to a queue that has dead-lettered it before.
    Circle,
    /// The message was dead-lettered with the strategy at-most-once into a queue that was full.
    Full,
    /// Its queue has no dead-letter exchange.
    Nowhere(Death),
}

/// The queues of a compiled topology.
#[derive(Debug)]
pub struct Queues<T> {
    routes: Arc<Routes>,
    now: u64,
    by_name: BTreeMap<String, Queue<T>>,
    /// The messages that were lost, and why.
    pub lost: Vec<(T, Loss)>,
}

impl<T: Clone> Queues<T> {
    /// Declares a topology. All queues are empty, and the time is 0.
    #[must_use]
    pub fn new(desired: &Desired) -> Self {
        let limits: Vec<Limit> = desired.policies.iter().filter_map(Limit::new).collect();
        let by_name = desired.queues.iter().map(|queue| (queue.name.clone(), Queue::new(queue, &limits))).collect();
        Self { routes: Arc::new(Routes::new(desired)), now: 0, by_name, lost: Vec::new() }
    }

    /// Declares a topology beside what is there. A queue with other arguments than before keeps its messages, and one with another name
    /// too.
    #[cfg(any(test, feature = "internals"))]
    pub fn declare(&mut self, desired: &Desired) {
        let mut routes = Routes::new(desired);
        routes.add(&self.routes);
        for (name, mut queue) in Self::new(desired).by_name {
            if let Some(before) = self.by_name.remove(&name) {
                queue.take_over(before);
            }
            self.by_name.insert(name, queue);
        }
        for Rename { from, to, .. } in &desired.renames {
            if let Some(before) = self.by_name.remove(from)
                && let Some(queue) = self.by_name.get_mut(to)
            {
                queue.take_over(before);
                routes.forget(from);
            }
        }
        self.routes = Arc::new(routes);
    }

    /// Returns the exchanges and their bindings.
    #[must_use]
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns the time, in milliseconds.
    #[must_use]
    #[cfg(any(test, feature = "internals"))]
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Whether there is a queue with this name.
    #[must_use]
    pub fn has_queue(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Publishes a message. Returns the number of queues that were full and refused it. A message without a binding is
    /// lost, and RabbitMQ confirms it all the same.
    pub fn publish(&mut self, exchange: &str, message: &Message<T>) -> usize {
        let routes = Arc::clone(&self.routes);
        let queues = routes.of(exchange, &message.key);
        if queues.is_empty() {
            self.lost.push((message.content.clone(), Loss::Unroutable));
        }
        queues.into_iter().filter(|queue| !self.deliver(queue, message.clone())).count()
    }

    /// Puts a message into a queue unchanged.
    pub(crate) fn put(&mut self, queue: &str, message: Message<T>) {
        self.by_name.get_mut(queue).expect("the queue is there").ready.push_back(message);
    }

    /// Removes the messages of a queue.
    #[cfg(test)]
    pub(crate) fn empty(&mut self, queue: &str) {
        self.by_name.get_mut(queue).expect("the queue is there").clear();
    }

    /// Takes the message at the head of a queue.
    pub fn take(&mut self, queue: &str) -> Option<Message<T>> {
        self.by_name.get_mut(queue)?.ready.pop_front()
    }

    /// Gives a message back that a consumer has taken. RabbitMQ puts it at the head of the queue, or dead-letters it
    /// once it exceeds the delivery limit.
    pub fn give_back(&mut self, name: &str, mut message: Message<T>) {
        let Some(queue) = self.by_name.get_mut(name) else { return };
        message.returns += 1;
        if queue.delivery_limit.is_some_and(|limit| message.returns > limit) {
            self.dead_letter(name, message, Death::DeliveryLimit);
        } else {
            queue.return_to_head(message);
        }
    }

    /// Rejects a message that a consumer has taken, which dead-letters it.
    pub fn reject(&mut self, name: &str, message: Message<T>) {
        self.dead_letter(name, message, Death::Rejected);
    }

    /// Returns the messages that are ready in each queue, in the order of delivery.
    pub fn ready(&self) -> impl Iterator<Item = (&str, impl ExactSizeIterator<Item = &Message<T>>)> {
        self.by_name.iter().map(|(name, queue)| (name.as_str(), queue.ready.iter()))
    }

    /// Returns the messages of a stream, the oldest first. `None` if there is no such stream.
    #[must_use]
    pub fn stream(&self, name: &str) -> Option<&VecDeque<Message<T>>> {
        Some(&self.by_name.get(name).filter(|queue| queue.kind == Kind::Stream)?.ready)
    }

    /// Returns the number of messages that are ready in a queue, or `None` if the queue does not exist.
    #[must_use]
    pub fn count(&self, queue: &str) -> Option<usize> {
        Some(self.by_name.get(queue)?.ready.len())
    }

    /// Whether a queue counts how often a message was returned. Classic queues do not.
    #[must_use]
    pub fn counts_returns(&self, queue: &str) -> bool {
        self.by_name.get(queue).is_some_and(|queue| queue.kind == Kind::Quorum)
    }

    /// Advances the time, and expires each message whose TTL ends until then.
    pub fn advance_to(&mut self, until: u64) {
        while let Some((at, name)) = self.next_expiry().filter(|(at, _)| *at <= until) {
            let name = name.to_owned();
            self.now = self.now.max(at);
            if let Some(head) = self.by_name.get_mut(&name).and_then(|queue| queue.ready.pop_front()) {
                self.dead_letter(&name, head, Death::Expired);
            }
        }
        self.now = self.now.max(until);
    }

    /// Returns the time at which the next message expires, and its queue. RabbitMQ expires only the message at the head
    /// of a queue.
    #[must_use]
    pub fn next_expiry(&self) -> Option<(u64, &str)> {
        self.by_name.iter().filter_map(|(name, queue)| Some((queue.ready.front()?.expires?, name.as_str()))).min()
    }

    /// Advances the time by three minutes, and offers dead letters again to the targets that refused them.
    #[cfg(any(test, feature = "internals"))]
    pub fn forward_again(&mut self) {
        self.now += AGAIN;
        let names: Vec<String> = self.by_name.keys().cloned().collect();
        for name in names {
            let Some(queue) = self.by_name.get_mut(&name) else { continue };
            for forwarding in std::mem::take(&mut queue.forwarding) {
                self.hand_on_or_keep(&name, forwarding);
            }
            self.forward(&name);
        }
    }

    /// Returns the number of dead letters that have left one queue and not reached the next one.
    #[must_use]
    #[cfg(any(test, feature = "internals"))]
    pub fn parked(&self) -> usize {
        self.by_name.values().map(|queue| queue.forwarding.len() + queue.discarded.len()).sum()
    }

    /// Deletes all messages, and sets the time to 0.
    #[cfg(any(test, feature = "internals"))]
    pub fn clear(&mut self) {
        self.now = 0;
        self.lost.clear();
        self.by_name.values_mut().for_each(Queue::clear);
    }

    /// Puts a message into a queue. Returns false if the queue is full and refuses the message.
    fn deliver(&mut self, name: &str, mut message: Message<T>) -> bool {
        let Some(queue) = self.by_name.get_mut(name) else { return true };
        let is_full = queue.max_length.is_some_and(|most| queue.ready.len() >= most);
        if is_full && queue.rejects_publish {
            return false;
        }
        message.expires = queue.ttl.map(|ttl| self.now + ttl);
        message.returns = 0;
        queue.ready.push_back(message);
        if is_full && let Some(head) = queue.ready.pop_front() {
            self.dead_letter(name, head, Death::MaxLength);
        }
        true
    }

    fn dead_letter(&mut self, name: &str, mut message: Message<T>, death: Death) {
        let Some(queue) = self.by_name.get_mut(name) else { return };
        let Some(exchange) = queue.dead_letter_exchange.clone() else {
            self.lost.push((message.content, Loss::Nowhere(death)));
            return;
        };
        let entry = (name.to_owned(), death);
        message.deaths.retain(|other| *other != entry);
        message.deaths.insert(0, entry);
        if queue.is_at_least_once {
            queue.discarded.push_back(Forwarding { message, death, left: None });
            self.forward(name);
            return;
        }
        match self.targets(&exchange, &message, death) {
            Err(loss) => self.lost.push((message.content, loss)),
            Ok(targets) => {
                for target in targets {
                    if !self.deliver(&target, message.clone()) {
                        self.lost.push((message.content.clone(), Loss::Full));
                    }
                }
            }
        }
    }

    /// Returns the queues that a dead letter goes to. RabbitMQ leaves out a queue that has dead-lettered the message
    /// before, unless a consumer has rejected it since.
    fn targets(&self, exchange: &str, message: &Message<T>, death: Death) -> Result<BTreeSet<String>, Loss> {
        let all = self.routes.of(exchange, &message.key);
        if all.is_empty() {
            return Err(Loss::Unroutable);
        }
        let is_target = |queue: &&str| death == Death::Rejected || !comes_back(queue, &message.deaths);
        let targets: BTreeSet<String> = all.into_iter().filter(is_target).map(str::to_owned).collect();
        if targets.is_empty() { Err(Loss::Circle) } else { Ok(targets) }
    }

    /// Forwards the dead letters of an at-least-once queue, as far as their targets take them.
    fn forward(&mut self, name: &str) {
        while let Some(queue) = self.by_name.get_mut(name)
            && queue.forwarding.len() < IN_FLIGHT
            && let Some(next) = queue.discarded.pop_front()
        {
            self.hand_on_or_keep(name, next);
        }
    }

    fn hand_on_or_keep(&mut self, name: &str, forwarding: Forwarding<T>) {
        if let Some(left) = self.hand_on(name, forwarding)
            && let Some(queue) = self.by_name.get_mut(name)
        {
            queue.forwarding.push(left);
        }
    }

    /// Offers a dead letter to its targets. Returns it if some target has not taken it.
    fn hand_on(&mut self, name: &str, mut forwarding: Forwarding<T>) -> Option<Forwarding<T>> {
        let exchange = self.by_name.get(name)?.dead_letter_exchange.clone()?;
        let mut left = match forwarding.left.take() {
            Some(left) => left,
            None => match self.targets(&exchange, &forwarding.message, forwarding.death) {
                Ok(targets) => targets,
                Err(_) => return Some(forwarding),
            },
        };
        left.retain(|target| !self.deliver(target, forwarding.message.clone()));
        (!left.is_empty()).then_some(Forwarding { left: Some(left), ..forwarding })
    }
}

/// Whether this queue has dead-lettered the message already, and no consumer has rejected it since.
fn comes_back(queue: &str, deaths: &[(String, Death)]) -> bool {
    deaths
        .iter()
        .position(|(name, _)| name == queue)
        .is_some_and(|at| deaths.iter().take(at + 1).all(|(_, death)| *death != Death::Rejected))
}

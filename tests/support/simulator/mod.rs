//! RabbitMQ's rules for routing, times to live and dead letters, small enough to be read in one go.
//!
//! Unit tests send events through compiled topologies with it; integration tests send the same ones through a real broker
//! and compare ([`rules`] are those that say it all by themselves).

pub(crate) mod generate;
mod queue;
pub(crate) mod route;
pub(crate) mod rules;

use std::collections::{BTreeMap, BTreeSet};

use hatchery::internals::compile::Desired;
use queue::{Forwarding, Limit, Queue};
use route::Routes;
pub(crate) use route::matches;

/// Messages that an at-least-once queue hands on at a time.
const IN_FLIGHT: usize = 32;

/// Until it tries those again that nobody took.
const AGAIN: u64 = 180_000;

/// A message, told apart by a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) id: u32,
    pub(crate) key: String,
    /// Newest first, and each pair once: `x-death`.
    deaths: Vec<(String, Death)>,
    returns: i64,
    expires: Option<u64>,
}

/// Why a message left a queue without having been acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    Expired,
    MaxLength,
    DeliveryLimit,
    /// By a consumer: the only one that is no automatism.
    Rejected,
}

/// Why a message is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// Nothing is bound for it, and there is no alternate exchange.
    Unroutable,
    /// It came back to a queue by itself.
    Circle,
    /// It was dead-lettered at most once into a queue that was full.
    Full,
    /// It died in a queue without a dead-letter exchange.
    Nowhere(Death),
}

/// What is done to a broker, one thing after the other.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// To an exchange (the one without a name too), with a key, by its number.
    Publish(String, String, u32),
    /// Every TTL below a minute runs out.
    Wait,
    /// A consumer rejects everything in a queue for good.
    Reject(String),
    /// A consumer gives back everything in a queue, so many times.
    Return(String, usize),
    /// Somebody publishes everything in a queue to an exchange, as it is, and acknowledges it.
    Move(String, String),
}

/// What short waits wait for, in milliseconds; longer TTLs never run out in a test against a broker.
pub(crate) const SHORT: u64 = 60_000;

/// A broker that declared a topology.
pub(crate) struct Simulator<'a> {
    routes: Routes<'a>,
    now: u64,
    queues: BTreeMap<&'a str, Queue<'a>>,
    pub(crate) lost: Vec<(u32, Loss)>,
    /// The numbers of what a publisher was told to keep.
    pub(crate) refused: Vec<u32>,
    /// What a client publishes begins anew, `x-death` or not: since RabbitMQ 4.
    pub(crate) begins_anew: bool,
}

impl<'a> Simulator<'a> {
    pub(crate) fn new(desired: &'a Desired) -> Self {
        let limits: Vec<Limit> = desired.policies.iter().filter_map(Limit::new).collect();
        let queues = desired.queues.iter().map(|queue| (&*queue.name, Queue::new(queue, &limits))).collect();
        Self { routes: Routes::new(desired), now: 0, queues, lost: Vec::new(), refused: Vec::new(), begins_anew: false }
    }

    /// Does it.
    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Publish(exchange, key, id) => self.publish(exchange, key, *id),
            Step::Wait => self.wait(SHORT),
            Step::Reject(queue) => {
                for message in self.take_all(queue) {
                    self.dead_letter(queue, message, Death::Rejected);
                }
            }
            Step::Return(queue, times) => (0..*times).for_each(|_| self.give_back(queue)),
            Step::Move(queue, exchange) => {
                for mut message in self.take_all(queue) {
                    if self.begins_anew {
                        message.deaths.clear();
                    }
                    self.accept(exchange, &message);
                }
            }
        }
    }

    fn publish(&mut self, exchange: &str, key: &str, id: u32) {
        let message = Message { id, key: key.to_owned(), deaths: Vec::new(), returns: 0, expires: None };
        self.accept(exchange, &message);
    }

    /// What a publisher sends. A broker confirms what it drops for want of a binding.
    fn accept(&mut self, exchange: &str, message: &Message) {
        let queues = self.routes.of(exchange, &message.key);
        if queues.is_empty() {
            self.lost.push((message.id, Loss::Unroutable));
        }
        for queue in queues {
            if !self.deliver(queue, message.clone()) {
                self.refused.push(message.id);
            }
        }
    }

    fn give_back(&mut self, name: &str) {
        for mut message in self.take_all(name) {
            let queue = self.queue(name);
            message.returns += 1;
            if queue.delivery_limit.is_some_and(|limit| message.returns > limit) {
                self.dead_letter(name, message, Death::DeliveryLimit);
            } else {
                queue.ready.push_back(message);
            }
        }
    }

    fn take_all(&mut self, queue: &str) -> Vec<Message> {
        self.queue(queue).ready.drain(..).collect()
    }

    fn queue(&mut self, name: &str) -> &mut Queue<'a> {
        self.queues.get_mut(name).unwrap_or_else(|| panic!("there is a queue {name}"))
    }

    /// Puts a message into a queue, unless that is full and refuses.
    fn deliver(&mut self, name: &str, mut message: Message) -> bool {
        let now = self.now;
        let queue = self.queue(name);
        let full = queue.max_length.is_some_and(|most| queue.ready.len() >= most);
        if full && queue.rejects_publish {
            return false;
        }
        message.expires = queue.ttl.map(|ttl| now + ttl);
        message.returns = 0;
        queue.ready.push_back(message);
        if full && let Some(head) = queue.ready.pop_front() {
            self.dead_letter(name, head, Death::MaxLength);
        }
        true
    }

    fn dead_letter(&mut self, name: &str, mut message: Message, death: Death) {
        let queue = self.queue(name);
        let Some(exchange) = queue.dead_letter_exchange else {
            self.lost.push((message.id, Loss::Nowhere(death)));
            return;
        };
        let entry = (name.to_owned(), death);
        message.deaths.retain(|other| *other != entry);
        message.deaths.insert(0, entry);
        if queue.at_least_once {
            queue.discarded.push_back(Forwarding { message, death, left: None });
            self.forward(name);
            return;
        }
        match self.targets(exchange, &message, death) {
            Err(loss) => self.lost.push((message.id, loss)),
            Ok(targets) => {
                for target in targets {
                    if !self.deliver(target, message.clone()) {
                        self.lost.push((message.id, Loss::Full));
                    }
                }
            }
        }
    }

    /// Where a dead letter goes. What would come back to a queue with no rejection since is left out.
    fn targets(&self, exchange: &str, message: &Message, death: Death) -> Result<BTreeSet<&'a str>, Loss> {
        let all = self.routes.of(exchange, &message.key);
        if all.is_empty() {
            return Err(Loss::Unroutable);
        }
        let targets: BTreeSet<&str> =
            all.into_iter().filter(|queue| death == Death::Rejected || !comes_back(queue, &message.deaths)).collect();
        if targets.is_empty() { Err(Loss::Circle) } else { Ok(targets) }
    }

    /// Hands on what an at-least-once queue has let go, as far as it is taken.
    fn forward(&mut self, name: &str) {
        while self.queue(name).forwarding.len() < IN_FLIGHT {
            let Some(next) = self.queue(name).discarded.pop_front() else { return };
            if let Some(left) = self.hand_on(name, next) {
                self.queue(name).forwarding.push(left);
            }
        }
    }

    /// What is left of it, when not every target took it.
    fn hand_on(&mut self, name: &str, mut forwarding: Forwarding<'a>) -> Option<Forwarding<'a>> {
        let exchange = self.queue(name).dead_letter_exchange?;
        let targets = match forwarding.left.take() {
            Some(left) => left,
            None => match self.targets(exchange, &forwarding.message, forwarding.death) {
                Ok(targets) => targets,
                Err(_) => return Some(forwarding),
            },
        };
        let left: BTreeSet<&str> =
            targets.into_iter().filter(|target| !self.deliver(target, forwarding.message.clone())).collect();
        (!left.is_empty()).then_some(Forwarding { left: Some(left), ..forwarding })
    }

    /// Tries again what nobody took.
    pub(crate) fn again(&mut self) {
        self.now += AGAIN;
        let names: Vec<&str> = self.queues.keys().copied().collect();
        for name in names {
            for forwarding in std::mem::take(&mut self.queue(name).forwarding) {
                if let Some(left) = self.hand_on(name, forwarding) {
                    self.queue(name).forwarding.push(left);
                }
            }
            self.forward(name);
        }
    }

    /// Lets everything happen that happens within this time.
    pub(crate) fn wait(&mut self, millis: u64) {
        let until = self.now.saturating_add(millis);
        while let Some((at, name)) = self.next_expiry().filter(|(at, _)| *at <= until) {
            self.now = at;
            if let Some(head) = self.queue(name).ready.pop_front() {
                self.dead_letter(name, head, Death::Expired);
            }
        }
        self.now = until;
    }

    /// Takes everything away, wherever it is, and sets the clock to 0.
    pub(crate) fn clear(&mut self) {
        self.now = 0;
        self.lost.clear();
        self.refused.clear();
        self.queues.values_mut().for_each(Queue::clear);
    }

    /// Lets every TTL run out, however long. Returns when the last one did.
    pub(crate) fn settle(&mut self) -> u64 {
        while let Some((at, _)) = self.next_expiry() {
            self.wait(at - self.now);
        }
        self.now
    }

    /// Only the message at the head of a queue expires.
    fn next_expiry(&self) -> Option<(u64, &'a str)> {
        self.queues.iter().filter_map(|(name, queue)| Some((queue.ready.front()?.expires?, *name))).min()
    }

    /// What is ready in each queue, in order of the numbers; empty queues are left out.
    pub(crate) fn contents(&self) -> Contents {
        let ready = |(name, queue): (&&str, &Queue<'_>)| {
            let mut ids: Vec<(u32, String)> =
                queue.ready.iter().map(|message| (message.id, message.key.clone())).collect();
            ids.sort();
            ((*name).to_owned(), ids)
        };
        self.queues.iter().filter(|(_, queue)| !queue.ready.is_empty()).map(ready).collect()
    }

    /// What hangs between two queues.
    pub(crate) fn parked(&self) -> usize {
        self.queues.values().map(|queue| queue.forwarding.len() + queue.discarded.len()).sum()
    }
}

/// The numbers and keys of what is ready, by queue.
pub(crate) type Contents = BTreeMap<String, Vec<(u32, String)>>;

/// Whether it left this queue already, and was rejected nowhere since.
fn comes_back(queue: &str, deaths: &[(String, Death)]) -> bool {
    deaths
        .iter()
        .position(|(name, _)| name == queue)
        .is_some_and(|at| deaths.iter().take(at + 1).all(|(_, death)| *death != Death::Rejected))
}

//! Drives the rules of the in-memory broker step by step, with messages that are numbers.
//!
//! Unit tests send events through compiled topologies with it; integration tests send the same ones through a real broker
//! and compare ([`rules`] are small topologies that each show one rule).

pub(crate) mod generate;
pub(crate) mod rules;

use std::collections::BTreeMap;

pub(crate) use hatchery::internals::memory::queues::route::matches;
use hatchery::internals::{
    compile::Desired,
    memory::queues::{Loss, Message, Queues},
};

/// One thing that is done to a broker.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Publishes a message, by its number, to an exchange (the one without a name too) with a routing key.
    Publish(String, String, u32),
    /// Waits until every TTL below a minute is over.
    Wait,
    /// A consumer rejects all messages of a queue.
    Reject(String),
    /// A consumer takes all messages of a queue and gives them back, so many times.
    Return(String, usize),
    /// A client publishes all messages of a queue to an exchange, as they are, and acknowledges them.
    Move(String, String),
}

/// How long a [`Step::Wait`] waits, in milliseconds. Longer TTLs are never over in a test against a broker.
pub(crate) const SHORT: u64 = 60_000;

/// A broker that declared a topology.
pub(crate) struct Simulator {
    queues: Queues<u32>,
    /// The numbers of the messages that the broker refused to take from a publisher.
    pub(crate) refused: Vec<u32>,
    /// Since RabbitMQ 4 the broker ignores the `x-death` header of a message that a client publishes.
    pub(crate) begins_anew: bool,
}

impl Simulator {
    pub(crate) fn new(desired: &Desired) -> Self {
        Self { queues: Queues::new(desired), refused: Vec::new(), begins_anew: false }
    }

    /// Does one step.
    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Publish(exchange, key, id) => self.publish(exchange, &Message::new(key, *id)),
            Step::Wait => self.queues.advance_to(self.queues.now() + SHORT),
            Step::Reject(queue) => {
                for message in self.take_all(queue) {
                    self.queues.reject(queue, message);
                }
            }
            Step::Return(queue, times) => {
                for _ in 0..*times {
                    for message in self.take_all(queue) {
                        self.queues.give_back(queue, message);
                    }
                }
            }
            Step::Move(queue, exchange) => {
                for mut message in self.take_all(queue) {
                    if self.begins_anew {
                        message.deaths.clear();
                    }
                    self.publish(exchange, &message);
                }
            }
        }
    }

    fn publish(&mut self, exchange: &str, message: &Message<u32>) {
        let refusals = self.queues.publish(exchange, message);
        self.refused.extend(std::iter::repeat_n(message.content, refusals));
    }

    fn take_all(&mut self, queue: &str) -> Vec<Message<u32>> {
        std::iter::from_fn(|| self.queues.take(queue)).collect()
    }

    /// The numbers of the messages that are gone, and why.
    pub(crate) fn lost(&self) -> &[(u32, Loss)] {
        &self.queues.lost
    }

    /// Offers dead letters again to the targets that refused them.
    pub(crate) fn again(&mut self) {
        self.queues.forward_again();
    }

    /// Deletes all messages, and sets the clock to 0.
    pub(crate) fn clear(&mut self) {
        self.queues.clear();
        self.refused.clear();
    }

    /// Waits until every TTL is over, however long. Returns the time at which the last one was.
    pub(crate) fn settle(&mut self) -> u64 {
        while let Some((at, _)) = self.queues.next_expiry() {
            self.queues.advance_to(at);
        }
        self.queues.now()
    }

    /// The messages that are ready in each queue, in order of their numbers; empty queues are left out.
    pub(crate) fn contents(&self) -> Contents {
        let mut contents = Contents::new();
        for (queue, messages) in self.queues.ready().filter(|(_, messages)| messages.len() > 0) {
            let mut ids: Vec<(u32, String)> = messages.map(|message| (message.content, message.key.clone())).collect();
            ids.sort();
            contents.insert(queue.to_owned(), ids);
        }
        contents
    }

    /// The number of dead letters between two queues.
    pub(crate) fn parked(&self) -> usize {
        self.queues.parked()
    }
}

/// The numbers and keys of the messages that are ready, by queue.
pub(crate) type Contents = BTreeMap<String, Vec<(u32, String)>>;

//! What a queue's arguments and policies mean.

use std::collections::{BTreeSet, VecDeque};

use fancy_regex::Regex;
use hatchery::internals::compile::{self, Argument, Policy};

use super::{Death, Message};

pub(super) struct Queue<'a> {
    pub(super) ttl: Option<u64>,
    pub(super) dead_letter_exchange: Option<&'a str>,
    pub(super) at_least_once: bool,
    pub(super) max_length: Option<usize>,
    pub(super) rejects_publish: bool,
    pub(super) delivery_limit: Option<i64>,
    pub(super) ready: VecDeque<Message>,
    /// Let go, and not yet in the hands of the forwarder.
    pub(super) discarded: VecDeque<Forwarding<'a>>,
    /// In its hands, and not taken by every target.
    pub(super) forwarding: Vec<Forwarding<'a>>,
}

/// A policy that limits the returns to some queues.
pub(super) struct Limit {
    queues: Regex,
    returns: i64,
}

impl Limit {
    pub(super) fn new(policy: &Policy) -> Option<Self> {
        match policy.definition.get("delivery-limit")? {
            Argument::Number(returns) => Some(Self { queues: Regex::new(&policy.pattern).ok()?, returns: *returns }),
            Argument::Text(_) | Argument::Flag(_) => None,
        }
    }
}

/// A dead letter on its way, at least once.
pub(super) struct Forwarding<'a> {
    pub(super) message: Message,
    pub(super) death: Death,
    /// The targets that refused it; none as long as it was never routed.
    pub(super) left: Option<BTreeSet<&'a str>>,
}

impl<'a> Queue<'a> {
    pub(super) fn new(queue: &'a compile::Queue, limits: &[Limit]) -> Self {
        let text = |name: &str| queue.arguments.get(name).and_then(Argument::as_text);
        let number = |name: &str| match queue.arguments.get(name)? {
            Argument::Number(number) => Some(*number),
            Argument::Text(_) | Argument::Flag(_) => None,
        };
        let quorum = text("x-queue-type") == Some("quorum");
        let dead_letter_exchange = text("x-dead-letter-exchange");
        let rejects_publish = text("x-overflow") == Some("reject-publish");
        let strategy = text("x-dead-letter-strategy") == Some("at-least-once");
        // Of several policies the highest would apply; here there is never more than one.
        let by_policy = limits.iter().find(|limit| limit.queues.is_match(&queue.name).unwrap_or(false));
        let limits = [number("x-delivery-limit"), by_policy.map(|limit| limit.returns)];
        Self {
            ttl: number("x-message-ttl").and_then(|millis| u64::try_from(millis).ok()),
            dead_letter_exchange,
            // Without the last of these it silently is at-most-once.
            at_least_once: quorum && strategy && dead_letter_exchange.is_some() && rejects_publish,
            max_length: number("x-max-length").and_then(|most| usize::try_from(most).ok()),
            rejects_publish,
            delivery_limit: limits.into_iter().flatten().min().filter(|_| quorum),
            ready: VecDeque::new(),
            discarded: VecDeque::new(),
            forwarding: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.ready.clear();
        self.discarded.clear();
        self.forwarding.clear();
    }
}

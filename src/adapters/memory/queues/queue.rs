//! One queue: its arguments, the policy that applies to it, and its messages.

use std::collections::{BTreeSet, VecDeque};

use fancy_regex::Regex;

use super::message::{Death, Message};
use crate::domain::compile::{self, Argument, Policy};

#[derive(Debug)]
pub(super) struct Queue<T> {
    pub(super) ttl: Option<u64>,
    pub(super) dead_letter_exchange: Option<String>,
    pub(super) is_at_least_once: bool,
    pub(super) max_length: Option<usize>,
    pub(super) rejects_publish: bool,
    pub(super) kind: Kind,
    pub(super) delivery_limit: Option<i64>,
    pub(super) ready: VecDeque<Message<T>>,
    /// Dead letters that wait for the queue's dead-letter process.
    pub(super) discarded: VecDeque<Forwarding<T>>,
    /// Dead letters that the dead-letter process holds because a target has not taken them.
    pub(super) forwarding: Vec<Forwarding<T>>,
}

/// The type of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Classic,
    Quorum,
    /// Keeps its messages.
    Stream,
}

/// A policy that limits how often the messages of some queues may be returned.
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

/// A dead letter on its way out of an at-least-once queue.
#[derive(Debug)]
pub(super) struct Forwarding<T> {
    pub(super) message: Message<T>,
    pub(super) death: Death,
    /// The targets that have not taken the message yet; `None` until it is routed.
    pub(super) left: Option<BTreeSet<String>>,
}

impl<T> Queue<T> {
    pub(super) fn new(queue: &compile::Queue, limits: &[Limit]) -> Self {
        let text = |name: &str| queue.arguments.get(name).and_then(Argument::as_text);
        let number = |name: &str| match queue.arguments.get(name)? {
            Argument::Number(number) => Some(*number),
            Argument::Text(_) | Argument::Flag(_) => None,
        };
        let kind = match text("x-queue-type") {
            _ if queue.is_stream() => Kind::Stream,
            Some("quorum") => Kind::Quorum,
            _ => Kind::Classic,
        };
        let is_quorum = kind == Kind::Quorum;
        let dead_letter_exchange = text("x-dead-letter-exchange").map(str::to_owned);
        let rejects_publish = text("x-overflow") == Some("reject-publish");
        let strategy = text("x-dead-letter-strategy") == Some("at-least-once");
        // Of several policies RabbitMQ applies the one of the highest priority; a topology has at most one.
        let by_policy = limits.iter().find(|limit| limit.queues.is_match(&queue.name).unwrap_or(false));
        let limits = [number("x-delivery-limit"), by_policy.map(|limit| limit.returns)];
        Self {
            ttl: number("x-message-ttl").and_then(|millis| u64::try_from(millis).ok()),
            // If one of these conditions does not hold, RabbitMQ falls back to at-most-once without a warning.
            is_at_least_once: is_quorum && strategy && dead_letter_exchange.is_some() && rejects_publish,
            dead_letter_exchange,
            max_length: number("x-max-length").and_then(|most| usize::try_from(most).ok()),
            rejects_publish,
            kind,
            delivery_limit: limits.into_iter().flatten().min().filter(|_| is_quorum),
            ready: VecDeque::new(),
            discarded: VecDeque::new(),
            forwarding: Vec::new(),
        }
    }

    /// Puts a returned message before all that were never delivered, and behind those that were returned earlier.
    pub(super) fn return_to_head(&mut self, message: Message<T>) {
        let at = self.ready.iter().take_while(|ready| ready.returns > 0).count();
        self.ready.insert(at, message);
    }

    /// Takes the messages of a queue that this one replaces.
    #[cfg(any(test, feature = "internals"))]
    pub(super) fn take_over(&mut self, mut before: Self) {
        self.ready.append(&mut before.ready);
        self.discarded.append(&mut before.discarded);
        self.forwarding.append(&mut before.forwarding);
    }

    #[cfg(any(test, feature = "internals"))]
    pub(super) fn clear(&mut self) {
        self.ready.clear();
        self.discarded.clear();
        self.forwarding.clear();
    }
}

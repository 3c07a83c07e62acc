//! The queues that a message reaches from an exchange.

use std::collections::{BTreeSet, HashMap};

use crate::domain::compile::{Argument, Desired, Target};

/// The exchanges of a topology with their bindings, and the names of its queues.
#[derive(Debug)]
pub struct Routes {
    exchanges: HashMap<String, Exchange>,
    queues: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Exchange {
    alternate: Option<String>,
    bindings: Vec<(Vec<String>, Target)>,
}

impl Routes {
    /// Returns the routes of a compiled topology.
    #[must_use]
    pub fn new(desired: &Desired) -> Self {
        let mut exchanges: HashMap<String, Exchange> = desired
            .exchanges
            .iter()
            .map(|exchange| {
                let alternate = exchange.arguments.get("alternate-exchange").and_then(Argument::as_text);
                let alternate = alternate.map(str::to_owned);
                (exchange.name.clone(), Exchange { alternate, bindings: Vec::new() })
            })
            .collect();
        for binding in &desired.bindings {
            let pattern = words(&binding.key).into_iter().map(str::to_owned).collect();
            let source = exchanges.entry(binding.source.clone()).or_default();
            source.bindings.push((pattern, binding.target.clone()));
        }
        Self { exchanges, queues: desired.queues.iter().map(|queue| queue.name.clone()).collect() }
    }

    /// Adds what another topology has besides. Of its bindings those stay that lead from or to an object that only it has.
    #[cfg(any(test, feature = "internals"))]
    pub(super) fn add(&mut self, other: &Self) {
        let is_own = |target: &Target| match target {
            Target::Queue(name) => self.queues.contains(name),
            Target::Exchange(name) => self.exchanges.contains_key(name),
        };
        let left = |(source, exchange): (&String, &Exchange)| {
            let is_there = self.exchanges.contains_key(source);
            let bindings = exchange.bindings.iter().filter(|(_, target)| !is_there || !is_own(target)).cloned();
            (source.clone(), Exchange { alternate: exchange.alternate.clone(), bindings: bindings.collect() })
        };
        for (source, mut left) in other.exchanges.iter().map(left).collect::<Vec<_>>() {
            match self.exchanges.get_mut(&source) {
                Some(exchange) => exchange.bindings.append(&mut left.bindings),
                None => drop(self.exchanges.insert(source, left)),
            }
        }
        self.queues.extend(other.queues.iter().cloned());
    }

    /// Forgets a queue.
    #[cfg(any(test, feature = "internals"))]
    pub(super) fn forget(&mut self, queue: &str) {
        self.queues.remove(queue);
        for exchange in self.exchanges.values_mut() {
            exchange.bindings.retain(|(_, target)| !matches!(target, Target::Queue(name) if name == queue));
        }
    }

    /// Whether there is an exchange with this name. The default exchange, whose name is empty, always exists.
    #[must_use]
    pub fn has_exchange(&self, name: &str) -> bool {
        name.is_empty() || self.exchanges.contains_key(name)
    }

    /// Returns the queues that a message reaches from an exchange. A queue to which several bindings lead gets it once.
    ///
    /// An alternate exchange gets the messages for which its exchange has no binding. A binding to another exchange
    /// counts, even if that exchange has no binding for the message.
    #[must_use]
    pub fn of(&self, exchange: &str, key: &str) -> BTreeSet<&str> {
        // The default exchange has a binding to each queue, with the queue's name as its key.
        if exchange.is_empty() {
            return self.queues.get(key).map(String::as_str).into_iter().collect();
        }
        let key = words(key);
        let (mut queues, mut seen, mut left) = (BTreeSet::new(), BTreeSet::new(), vec![exchange]);
        while let Some(name) = left.pop() {
            let Some((name, exchange)) = self.exchanges.get_key_value(name) else { continue };
            if !seen.insert(name) {
                continue;
            }
            let mut unbound = true;
            for (_, target) in exchange.bindings.iter().filter(|(pattern, _)| words_match(pattern, &key)) {
                unbound = false;
                match target {
                    Target::Queue(queue) => drop(queues.insert(queue.as_str())),
                    Target::Exchange(next) => left.push(next),
                }
            }
            left.extend(exchange.alternate.as_deref().filter(|_| unbound));
        }
        queues
    }
}

/// Whether a topic pattern matches a routing key: `*` is one word, which may be empty, and `#` any number of words.
#[must_use]
#[cfg(any(test, feature = "internals"))]
pub fn matches(pattern: &str, key: &str) -> bool {
    words_match(&words(pattern), &words(key))
}

/// Splits a text into words. An empty text has no words, rather than one empty word.
fn words(text: &str) -> Vec<&str> {
    if text.is_empty() { Vec::new() } else { text.split('.').collect() }
}

fn words_match<S: AsRef<str>>(pattern: &[S], key: &[&str]) -> bool {
    match (pattern.split_first(), key.split_first()) {
        (None, None) => true,
        (Some((word, rest)), _) if word.as_ref() == "#" => {
            words_match(rest, key) || key.split_first().is_some_and(|(_, key)| words_match(pattern, key))
        }
        (Some((word, pattern)), Some((first, key))) => {
            (word.as_ref() == "*" || word.as_ref() == *first) && words_match(pattern, key)
        }
        _ => false,
    }
}

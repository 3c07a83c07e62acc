//! Where an exchange sends a message.

use std::collections::{BTreeSet, HashMap};

use hatchery::internals::compile::{Argument, Desired, Target};

/// Every exchange of a topology.
pub(crate) struct Routes<'a> {
    exchanges: HashMap<&'a str, Exchange<'a>>,
    queues: BTreeSet<&'a str>,
}

#[derive(Default)]
struct Exchange<'a> {
    alternate: Option<&'a str>,
    bindings: Vec<(Vec<&'a str>, &'a Target)>,
}

impl<'a> Routes<'a> {
    pub(crate) fn new(desired: &'a Desired) -> Self {
        let mut exchanges: HashMap<&str, Exchange<'_>> = desired
            .exchanges
            .iter()
            .map(|exchange| {
                let alternate = exchange.arguments.get("alternate-exchange").and_then(Argument::as_text);
                (exchange.name.as_str(), Exchange { alternate, bindings: Vec::new() })
            })
            .collect();
        for binding in &desired.bindings {
            let source = exchanges.entry(&binding.source).or_default();
            source.bindings.push((words(&binding.key), &binding.target));
        }
        Self { exchanges, queues: desired.queues.iter().map(|queue| queue.name.as_str()).collect() }
    }

    /// The queues that a message reaches from an exchange, each once, however many ways lead there.
    ///
    /// An alternate exchange gets what its exchange has no binding for. A binding to an exchange counts, even if that one
    /// has nowhere to send it.
    pub(crate) fn of(&self, exchange: &str, key: &str) -> BTreeSet<&'a str> {
        // The exchange without a name knows every queue by its own.
        if exchange.is_empty() {
            return self.queues.get(key).copied().into_iter().collect();
        }
        let key = words(key);
        let (mut queues, mut seen, mut left) = (BTreeSet::new(), BTreeSet::new(), vec![exchange]);
        while let Some(name) = left.pop() {
            let Some(exchange) = self.exchanges.get(name).filter(|_| seen.insert(name)) else { continue };
            let mut unbound = true;
            for (_, target) in exchange.bindings.iter().filter(|(pattern, _)| words_match(pattern, &key)) {
                unbound = false;
                match target {
                    Target::Queue(queue) => drop(queues.insert(queue.as_str())),
                    Target::Exchange(next) => left.push(next),
                }
            }
            left.extend(exchange.alternate.filter(|_| unbound));
        }
        queues
    }
}

/// A topic pattern's match: `*` is one word, an empty one too, and `#` any number.
pub(crate) fn matches(pattern: &str, key: &str) -> bool {
    words_match(&words(pattern), &words(key))
}

/// Nothing has no words, not one empty word.
fn words(text: &str) -> Vec<&str> {
    if text.is_empty() { Vec::new() } else { text.split('.').collect() }
}

fn words_match(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern.split_first(), key.split_first()) {
        (None, None) => true,
        (Some((&"#", rest)), _) => {
            words_match(rest, key) || key.split_first().is_some_and(|(_, key)| words_match(pattern, key))
        }
        (Some((word, pattern)), Some((first, key))) => (*word == "*" || word == first) && words_match(pattern, key),
        _ => false,
    }
}

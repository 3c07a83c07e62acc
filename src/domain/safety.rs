//! The proof that a compiled topology drops nothing. No topology is had without it.
//!
//! It looks at the objects alone, by RabbitMQ's rules, and knows nothing of the compiler that made them.

mod ways;

use std::collections::{BTreeSet, HashMap, HashSet};

use fancy_regex::Regex;

use super::{
    compile::{Argument, Desired, Exchange, LIMIT, LOCATOR, NO_DELIVERY_LIMIT, OWNER, Policy, Queue, SINGLE, Target},
    names,
    spec::QueueType,
    ttl::LONGEST,
};

/// What RabbitMQ keeps for itself, with every name that begins with it (measured: it refuses such a name).
pub const RESERVED: &str = "amq";

/// A topology that could drop an event, or could not be declared. Nothing of it is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the compiled topology is not safe: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Unsafe(pub Vec<Hazard>);

/// One way to lose an event.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Hazard {
    /// Two objects of one name: on the broker they are one.
    #[error("{0} is there twice")]
    Twice(Target),
    /// A name that RabbitMQ refuses, or that hatchery itself needs for a while.
    #[error("{0} has a reserved name")]
    Reserved(Target),
    /// Without the label nobody could tell whose it is.
    #[error("{0} does not say whose it is")]
    Unowned(Target),
    /// An argument that is misspelt, or that the type of queue does not have: RabbitMQ may store it and do nothing.
    #[error("{object} has the argument {argument}, which means nothing there")]
    Unknown {
        /// What has it.
        object: Target,
        /// The argument.
        argument: String,
    },
    /// Without a type the virtual host's default decides.
    #[error("queue {0} is neither a quorum queue nor a classic one")]
    Type(String),
    /// What leads to nothing.
    #[error("{from} leads to {to}, which is not there")]
    Missing {
        /// What leads there.
        from: Target,
        /// What is missing.
        to: Target,
    },
    /// An event that comes back to a queue by itself is dropped by RabbitMQ, or stays for ever.
    #[error("an event could go in a circle, and RabbitMQ would drop it: {}", .0.join(" -> "))]
    Circle(Vec<String>),
    /// What finds no binding is dropped, or wedges the queue that it came from.
    #[error("exchange {0} has no alternate exchange that takes everything")]
    NoAlternate(String),
    /// A quorum queue dead-letters at most once unless it is told otherwise.
    #[error("queue {0} dead-letters at most once")]
    AtMostOnce(String),
    /// Then `at-least-once` silently is at-most-once.
    #[error("queue {0} dead-letters at most once, because its x-overflow is not reject-publish")]
    NotRejecting(String),
    /// A full queue wedges every hatchery before it.
    #[error("queue {queue} is bounded by {argument}")]
    Bounded {
        /// The queue.
        queue: String,
        /// What bounds it.
        argument: String,
    },
    /// It goes with its events, and dead-letters none of them.
    #[error("queue {0} expires with its events")]
    Expires(String),
    /// The routing key says what an event is and where it goes.
    #[error("queue {0} changes the routing key of what it dead-letters")]
    Rekeyed(String),
    /// RabbitMQ takes 0 as well, which is no timer.
    #[error("queue {0} has a TTL that is not between 1ms and ten years")]
    Ttl(String),
    /// Each event is dropped when its time is up.
    #[error("queue {0} has a TTL and no dead-letter exchange")]
    NoWayOut(String),
    /// A quorum queue without a dead-letter exchange drops what comes back too often.
    #[error("queue {0} has neither a dead-letter exchange nor x-delivery-limit {NO_DELIVERY_LIMIT}")]
    Limited(String),
    /// What safety depends on is an argument, and a policy would win over it.
    #[error("policy {policy} sets {key}")]
    Tuned {
        /// The policy.
        policy: String,
        /// What it sets.
        key: String,
    },
    /// The lower of the two limits wins.
    #[error("policy {policy} limits the returns to queue {queue}, which has no dead-letter exchange or keeps order")]
    Lowered {
        /// The policy.
        policy: String,
        /// The queue that would drop events, or put them out of order.
        queue: String,
    },
    /// What comes back too often would be put aside, and what is behind it would overtake it.
    #[error("queue {0} has a single active consumer and not x-delivery-limit {NO_DELIVERY_LIMIT}")]
    Overtaken(String),
    /// Nobody knows what it applies to.
    #[error("the pattern of policy {0} cannot be read")]
    Pattern(String),
}

/// Proves a topology safe.
///
/// # Errors
/// When it is not, with every reason.
pub fn prove(desired: &Desired) -> Result<(), Unsafe> {
    let there = There::of(desired);
    let mut hazards = Vec::new();
    let names = desired.exchanges.iter().map(|exchange| Target::Exchange(exchange.name.clone()));
    names_in(&desired.owner, names.chain(desired.queues.iter().map(queue_of)), &mut hazards);
    for exchange in &desired.exchanges {
        there.exchange(&desired.owner, exchange, &mut hazards);
    }
    for queue in &desired.queues {
        there.queue(&desired.owner, queue, &mut hazards);
    }
    for binding in &desired.bindings {
        let source = Target::Exchange(binding.source.clone());
        for (from, to) in [(&binding.target, &source), (&source, &binding.target)] {
            there.expect(from, to, &mut hazards);
        }
    }
    for policy in &desired.policies {
        policy_in(desired, policy, &mut hazards);
    }
    hazards.extend(ways::circle(desired).map(Hazard::Circle));
    if hazards.is_empty() { Ok(()) } else { Err(Unsafe(hazards)) }
}

fn queue_of(queue: &Queue) -> Target {
    Target::Queue(queue.name.clone())
}

fn text<'a>(queue: &'a Queue, argument: &str) -> Option<&'a str> {
    queue.arguments.get(argument)?.as_text()
}

fn names_in(owner: &str, objects: impl Iterator<Item = Target>, hazards: &mut Vec<Hazard>) {
    let (lock, moving) = (names::lock(owner), format!("{owner}.moving."));
    let mut seen = HashSet::new();
    for object in objects {
        let name = object.name();
        let ours = matches!(object, Target::Queue(_)) && (name == lock || name.starts_with(&moving));
        if ours || name.is_empty() || name.strip_prefix(RESERVED).is_some_and(|rest| rest.starts_with('.')) {
            hazards.push(Hazard::Reserved(object.clone()));
        }
        if !seen.insert(object.clone()) {
            hazards.push(Hazard::Twice(object));
        }
    }
}

/// What is declared, by name.
struct There<'a> {
    exchanges: HashMap<&'a str, &'a Exchange>,
    queues: HashSet<&'a str>,
    /// Exchanges that route everything: a queue is bound to them by `#`.
    catching: HashSet<&'a str>,
}

impl<'a> There<'a> {
    fn of(desired: &'a Desired) -> Self {
        let queues: HashSet<&str> = desired.queues.iter().map(|queue| queue.name.as_str()).collect();
        let to_queue = |target: &Target| matches!(target, Target::Queue(name) if queues.contains(name.as_str()));
        let catching = desired.bindings.iter().filter(|binding| binding.key == "#" && to_queue(&binding.target));
        Self {
            catching: catching.map(|binding| binding.source.as_str()).collect(),
            exchanges: desired.exchanges.iter().map(|exchange| (exchange.name.as_str(), exchange)).collect(),
            queues,
        }
    }

    fn expect(&self, from: &Target, to: &Target, hazards: &mut Vec<Hazard>) {
        let there = match to {
            Target::Exchange(name) => self.exchanges.contains_key(name.as_str()),
            Target::Queue(name) => self.queues.contains(name.as_str()),
        };
        if !there {
            hazards.push(Hazard::Missing { from: from.clone(), to: to.clone() });
        }
    }

    fn exchange(&self, owner: &str, exchange: &Exchange, hazards: &mut Vec<Hazard>) {
        let object = Target::Exchange(exchange.name.clone());
        if exchange.arguments.get(OWNER).and_then(Argument::as_text) != Some(owner) {
            hazards.push(Hazard::Unowned(object.clone()));
        }
        for argument in exchange.arguments.keys().filter(|name| !["alternate-exchange", OWNER].contains(&name.as_str()))
        {
            hazards.push(Hazard::Unknown { object: object.clone(), argument: argument.clone() });
        }
        if let Some(alternate) = alternate(exchange) {
            self.expect(&object, &Target::Exchange(alternate.to_owned()), hazards);
        }
        if !self.routes_everything(exchange) {
            hazards.push(Hazard::NoAlternate(exchange.name.clone()));
        }
    }

    /// Whether it, or its alternate, or the alternate's own, and so on, routes everything.
    fn routes_everything(&self, exchange: &'a Exchange) -> bool {
        let next = |exchange: &&'a Exchange| self.exchanges.get(alternate(exchange)?).copied();
        // More steps than there are exchanges would be a circle.
        std::iter::successors(Some(exchange), next)
            .take(self.exchanges.len())
            .any(|exchange| self.catching.contains(exchange.name.as_str()))
    }

    fn queue(&self, owner: &str, queue: &Queue, hazards: &mut Vec<Hazard>) {
        let name = || queue.name.clone();
        let has = |argument: &str| queue.arguments.contains_key(argument);
        let quorum = text(queue, "x-queue-type") == Some(QueueType::Quorum.as_str());
        if !quorum && text(queue, "x-queue-type") != Some(QueueType::Classic.as_str()) {
            hazards.push(Hazard::Type(name()));
        }
        if text(queue, OWNER) != Some(owner) {
            hazards.push(Hazard::Unowned(queue_of(queue)));
        }
        for argument in queue.arguments.keys() {
            hazards.extend(forbidden(queue, argument, quorum));
        }
        if has("x-message-ttl") {
            let longest = i64::try_from(LONGEST.as_millis()).unwrap_or(i64::MAX);
            if !matches!(queue.arguments["x-message-ttl"], Argument::Number(millis) if (1..=longest).contains(&millis))
            {
                hazards.push(Hazard::Ttl(name()));
            }
            if !has("x-dead-letter-exchange") {
                hazards.push(Hazard::NoWayOut(name()));
            }
        }
        if has("x-dead-letter-exchange") {
            let exchange = text(queue, "x-dead-letter-exchange").unwrap_or_default();
            self.expect(&queue_of(queue), &Target::Exchange(exchange.to_owned()), hazards);
            match (text(queue, "x-dead-letter-strategy"), text(queue, "x-overflow")) {
                _ if !quorum => {}
                (Some("at-least-once"), Some("reject-publish")) => {}
                (Some("at-least-once"), _) => hazards.push(Hazard::NotRejecting(name())),
                _ => hazards.push(Hazard::AtMostOnce(name())),
            }
        }
        if quorum && queue.arguments.get(LIMIT) != Some(&Argument::Number(NO_DELIVERY_LIMIT)) {
            if has(SINGLE) {
                hazards.push(Hazard::Overtaken(name()));
            } else if !has("x-dead-letter-exchange") {
                hazards.push(Hazard::Limited(name()));
            }
        }
    }
}

fn alternate(exchange: &Exchange) -> Option<&str> {
    exchange.arguments.get("alternate-exchange")?.as_text()
}

/// What is wrong with having this argument, whatever its value.
fn forbidden(queue: &Queue, argument: &str, quorum: bool) -> Option<Hazard> {
    let name = || queue.name.clone();
    Some(match argument {
        OWNER | SINGLE | "x-queue-type" | "x-message-ttl" | "x-dead-letter-exchange" => return None,
        "x-dead-letter-strategy" | "x-overflow" | LIMIT | LOCATOR if quorum => return None,
        "x-expires" => Hazard::Expires(name()),
        "x-dead-letter-routing-key" => Hazard::Rekeyed(name()),
        "x-max-length" | "x-max-length-bytes" => Hazard::Bounded { queue: name(), argument: argument.to_owned() },
        _ => Hazard::Unknown { object: queue_of(queue), argument: argument.to_owned() },
    })
}

fn policy_in(desired: &Desired, policy: &Policy, hazards: &mut Vec<Hazard>) {
    for key in policy.definition.keys().filter(|key| *key != "delivery-limit") {
        hazards.push(Hazard::Tuned { policy: policy.name.clone(), key: key.clone() });
    }
    let Ok(pattern) = Regex::new(&policy.pattern) else {
        hazards.push(Hazard::Pattern(policy.name.clone()));
        return;
    };
    let unlimited = desired.queues.iter().filter(|queue| {
        let has = |argument| queue.arguments.contains_key(argument);
        !has("x-dead-letter-exchange") || has(SINGLE)
    });
    let names: BTreeSet<&str> = unlimited.map(|queue| queue.name.as_str()).collect();
    for queue in names.into_iter().filter(|queue| pattern.is_match(queue).unwrap_or(true)) {
        hazards.push(Hazard::Lowered { policy: policy.name.clone(), queue: queue.to_owned() });
    }
}

#[cfg(test)]
mod tests;

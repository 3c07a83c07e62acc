//! Proves that a compiled topology loses no event. [`compile`](super::compile::compile) returns no topology without
//! this proof.
//!
//! The proof checks the objects alone against RabbitMQ's rules, and does not depend on how the compiler made them.

mod ways;

use std::collections::{BTreeSet, HashMap, HashSet};

use fancy_regex::Regex;

use super::{
    desired::{
        Argument, Desired, Exchange, LIMIT, LOCATOR, NO_DELIVERY_LIMIT, OWNER, Policy, Queue, RETENTION, SINGLE, Target,
    },
    names,
    spec::QueueType,
    ttl::LONGEST,
};

/// The word that begins the names that RabbitMQ reserves, like `amq.topic` (measured: it refuses such a name).
pub const RESERVED: &str = "amq";

/// The hazards of a topology that could lose an event or could not be declared. Nothing of such a topology is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the compiled topology is not safe: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Unsafe(pub Vec<Hazard>);

/// A reason why a topology could lose an event or could not be declared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Hazard {
    /// Two objects have one name: on the broker they would be one.
    #[error("{0} is declared twice")]
    Twice(Target),
    /// An object has a name that RabbitMQ refuses, or one that hatchery needs for its lock or for a migration.
    #[error("{0} has a reserved name")]
    Reserved(Target),
    /// An object does not carry the label of this owner, so no later `plan` would recognise it.
    #[error("{0} does not name its owner")]
    Unowned(Target),
    /// An argument is misspelt, or does not exist for this type of queue: RabbitMQ may store it and ignore it.
    #[error("{object} has the argument {argument}, which is not valid there")]
    Unknown {
        /// The object with the argument.
        object: Target,
        /// The argument's name.
        argument: String,
    },
    /// A queue has no known type. Without one the default of the virtual host would decide.
    #[error("queue {0} is neither a quorum queue nor a classic one, nor a stream")]
    Type(String),
    /// An event could come to a stream. No worker takes it from there.
    #[error("stream {stream} is on the way of events: exchange {exchange} leads there")]
    OnTheWay {
        /// The stream.
        stream: String,
        /// The exchange that leads to the stream, and that events may pass.
        exchange: String,
    },
    /// A binding, a dead-letter exchange or an alternate exchange refers to an object that is not declared.
    #[error("{from} leads to {to}, which does not exist")]
    Missing {
        /// The object that refers to the missing one.
        from: Target,
        /// The missing object.
        to: Target,
    },
    /// Dead-lettering could bring an event back to a queue where it has been. RabbitMQ would drop the event, or move it
    /// for ever.
    #[error("RabbitMQ would drop an event in a dead-letter cycle: {}", .0.join(" -> "))]
    Circle(Vec<String>),
    /// A message that matches no binding would be dropped, or would wedge the queue that it came from.
    #[error("exchange {0} has no alternate exchange that takes everything")]
    NoAlternate(String),
    /// A quorum queue does not set the strategy `at-least-once`. RabbitMQ's default is at most once.
    #[error("queue {0} dead-letters at most once")]
    AtMostOnce(String),
    /// A queue does not set the overflow `reject-publish`. Without it RabbitMQ silently ignores `at-least-once`.
    #[error("queue {0} dead-letters at most once, because its x-overflow is not reject-publish")]
    NotRejecting(String),
    /// A queue has a maximum length. A full queue wedges every hatchery that leads to it, and a stream loses its last word.
    #[error("queue {queue} is bounded by {argument}")]
    Bounded {
        /// The queue.
        queue: String,
        /// The argument that bounds the queue.
        argument: String,
    },
    /// A stream has no maximum length, and would fill the disk. RabbitMQ then blocks every publisher.
    #[error("stream {0} has no policy that limits its size")]
    Endless(String),
    /// A queue would expire. RabbitMQ deletes an expired queue with its events and dead-letters none of them.
    #[error("queue {0} has x-expires, and RabbitMQ would delete it with its events")]
    Expires(String),
    /// A queue has a dead-letter routing key. The event would lose its own, which names its type and its route.
    #[error("queue {0} changes the routing key of the messages that it dead-letters")]
    Rekeyed(String),
    /// A queue's TTL is out of range. RabbitMQ also takes 0, but a queue with that TTL is no timer.
    #[error("queue {0} has a TTL that is not between 1ms and ten years")]
    Ttl(String),
    /// A queue has a TTL and no dead-letter exchange. RabbitMQ drops an event whose TTL ends there.
    #[error("queue {0} has a TTL and no dead-letter exchange")]
    NoWayOut(String),
    /// A quorum queue has neither a dead-letter exchange nor a delivery limit out of reach. It would drop an event that
    /// comes back too often.
    #[error("queue {0} has neither a dead-letter exchange nor x-delivery-limit {NO_DELIVERY_LIMIT}")]
    Limited(String),
    /// A policy sets something other than the delivery limit and the retention of a stream. Safety depends on the queues' arguments, and a policy
    /// must not interfere with them.
    #[error("policy {policy} sets {key}")]
    Tuned {
        /// The policy.
        policy: String,
        /// The key that the policy sets.
        key: String,
    },
    /// A policy limits what a queue keeps. Only the stream of the life of events may lose what it holds.
    #[error("policy {policy} limits {queue} by {key}")]
    Kept {
        /// The policy.
        policy: String,
        /// The queue or stream.
        queue: String,
        /// The key that the policy sets.
        key: String,
    },
    /// A policy sets a delivery limit for a queue that must have none. The lower limit of policy and argument wins.
    #[error(
        "policy {policy} sets a delivery limit for queue {queue}, which has no dead-letter exchange or keeps order"
    )]
    Lowered {
        /// The policy.
        policy: String,
        /// The queue, which would drop events or deliver them out of order.
        queue: String,
    },
    /// A queue that keeps order has a delivery limit. RabbitMQ would dead-letter an event that comes back too often,
    /// and the events behind it would overtake it.
    #[error("queue {0} has a single active consumer and not x-delivery-limit {NO_DELIVERY_LIMIT}")]
    Overtaken(String),
    /// A policy's pattern is not a regular expression, so the queues that it applies to are unknown.
    #[error("the pattern of policy {0} is not a regular expression")]
    Pattern(String),
}

/// Proves that a topology is safe.
///
/// # Errors
/// When the topology is not safe, with every hazard.
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
    hazards.extend(endless(desired).map(Hazard::Endless));
    let passed = ways::to_streams(desired).into_iter();
    hazards
        .extend(passed.map(|(stream, exchange)| Hazard::OnTheWay { stream: stream.into(), exchange: exchange.into() }));
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
    let (locks, moving) = ([names::lock(owner), names::control_lock(owner)], format!("{owner}.moving."));
    let mut seen = HashSet::new();
    for object in objects {
        let name = object.name();
        let ours =
            matches!(object, Target::Queue(_)) && (locks.iter().any(|lock| name == lock) || name.starts_with(&moving));
        if ours || name.is_empty() || name.strip_prefix(RESERVED).is_some_and(|rest| rest.starts_with('.')) {
            hazards.push(Hazard::Reserved(object.clone()));
        }
        if !seen.insert(object.clone()) {
            hazards.push(Hazard::Twice(object));
        }
    }
}

/// The declared objects by name.
struct There<'a> {
    exchanges: HashMap<&'a str, &'a Exchange>,
    queues: HashSet<&'a str>,
    /// Exchanges that route every message, because a queue is bound to them by `#`.
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

    /// Tells whether this exchange, or any exchange in the chain of its alternates, routes every message.
    fn routes_everything(&self, exchange: &'a Exchange) -> bool {
        let next = |exchange: &&'a Exchange| self.exchanges.get(alternate(exchange)?).copied();
        // The alternates may form a cycle, so the chain ends after as many steps as there are exchanges.
        std::iter::successors(Some(exchange), next)
            .take(self.exchanges.len())
            .any(|exchange| self.catching.contains(exchange.name.as_str()))
    }

    fn queue(&self, owner: &str, queue: &Queue, hazards: &mut Vec<Hazard>) {
        let name = || queue.name.clone();
        let has = |argument: &str| queue.arguments.contains_key(argument);
        let quorum = text(queue, "x-queue-type") == Some(QueueType::Quorum.as_str());
        if !quorum && !queue.is_stream() && text(queue, "x-queue-type") != Some(QueueType::Classic.as_str()) {
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

/// Returns the hazard of an argument that a queue of this type must not have, whatever its value.
fn forbidden(queue: &Queue, argument: &str, quorum: bool) -> Option<Hazard> {
    let name = || queue.name.clone();
    let stream = queue.is_stream();
    Some(match argument {
        OWNER | "x-queue-type" => return None,
        SINGLE | "x-message-ttl" | "x-dead-letter-exchange" if !stream => return None,
        "x-dead-letter-strategy" | "x-overflow" | LIMIT | LOCATOR if quorum => return None,
        "x-expires" => Hazard::Expires(name()),
        "x-dead-letter-routing-key" => Hazard::Rekeyed(name()),
        "x-max-length" | "x-max-length-bytes" => Hazard::Bounded { queue: name(), argument: argument.to_owned() },
        "x-max-age" if stream => Hazard::Bounded { queue: name(), argument: argument.to_owned() },
        _ => Hazard::Unknown { object: queue_of(queue), argument: argument.to_owned() },
    })
}

fn policy_in(desired: &Desired, policy: &Policy, hazards: &mut Vec<Hazard>) {
    let is_of_retention = |key: &str| RETENTION.contains(&key);
    for key in policy.definition.keys().filter(|key| *key != "delivery-limit" && !is_of_retention(key)) {
        hazards.push(Hazard::Tuned { policy: policy.name.clone(), key: key.clone() });
    }
    let Ok(pattern) = Regex::new(&policy.pattern) else {
        hazards.push(Hazard::Pattern(policy.name.clone()));
        return;
    };
    let life_cycle = names::life_cycle(&desired.owner);
    let keeping = desired.queues.iter().filter(|queue| queue.name != life_cycle || !queue.is_stream());
    for queue in keeping.filter(|queue| pattern.is_match(&queue.name).unwrap_or(true)) {
        for key in policy.definition.keys().filter(|key| is_of_retention(key)) {
            hazards.push(Hazard::Kept { policy: policy.name.clone(), queue: queue.name.clone(), key: key.clone() });
        }
    }
    if !policy.definition.contains_key("delivery-limit") {
        return;
    }
    let unlimited = desired.queues.iter().filter(|queue| {
        let has = |argument| queue.arguments.contains_key(argument);
        !has("x-dead-letter-exchange") || has(SINGLE)
    });
    let names: BTreeSet<&str> = unlimited.map(|queue| queue.name.as_str()).collect();
    for queue in names.into_iter().filter(|queue| pattern.is_match(queue).unwrap_or(true)) {
        hazards.push(Hazard::Lowered { policy: policy.name.clone(), queue: queue.to_owned() });
    }
}

/// Returns the streams that no policy limits, but for the one with the switches, on which people write now and then.
fn endless(desired: &Desired) -> impl Iterator<Item = String> {
    let control = names::control(&desired.owner);
    let limits = |policy: &Policy, name: &str| {
        policy.definition.contains_key("max-length-bytes")
            && Regex::new(&policy.pattern).is_ok_and(|pattern| pattern.is_match(name).unwrap_or(false))
    };
    let streams = desired.queues.iter().filter(move |queue| queue.is_stream() && queue.name != control);
    let free = streams.filter(move |queue| !desired.policies.iter().any(|policy| limits(policy, &queue.name)));
    free.map(|queue| queue.name.clone())
}

#[cfg(test)]
mod tests;

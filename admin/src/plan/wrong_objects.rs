//! Finds objects that are there under a name of the topology, and lose events or keep them for ever: somebody else has declared
//! them anew.

use std::collections::BTreeSet;

use hatchery::internals::{
    compile::{Binding, Desired, STREAM, Target},
    names,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Address, Difference, Kind, compare, view::any};
use crate::live::Observed;

/// The properties on which the safety of events depends, and that no change of a file changes.
const SAFETY: [&str; 11] = [
    "alternate-exchange",
    "auto_delete",
    "durable",
    "type",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-expires",
    "x-max-age",
    "x-max-length",
    "x-max-length-bytes",
    "x-message-ttl",
];

/// More such properties. A file changes each of them only together with another one (`queue-type`, `on-failure: block`).
const WITH: [(&str, &str); 3] = [
    ("x-dead-letter-strategy", "x-queue-type"),
    ("x-overflow", "x-queue-type"),
    ("x-delivery-limit", "x-single-active-consumer"),
];

/// An object that may lose events, or keep them for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WrongObject {
    /// The object.
    #[serde(flatten)]
    pub address: Address,
    /// The properties that it should have otherwise. Empty for a binding, which is missing.
    pub differences: Vec<Difference>,
}

/// Returns the objects of the file that may lose events, or keep them for ever, whoever owns them. An exchange without its
/// alternate exchange counts also where a policy sets one (RabbitMQ prefers the argument, and no policy can take that away).
#[must_use]
pub fn wrong_objects(desired: &Desired, observed: &Observed) -> Vec<WrongObject> {
    let exchanges = desired.exchanges.iter().filter_map(|wanted| {
        let live = observed.exchanges.iter().find(|live| live.name == wanted.name)?;
        wrong(Address::new(Kind::Exchange, &wanted.name), compare::exchange(wanted, live))
    });
    let queues = desired.queues.iter().filter_map(|wanted| {
        let live = observed.queues.iter().find(|live| live.name == wanted.name)?;
        wrong(Address::new(Kind::Queue, &wanted.name), compare::queue(&wanted.arguments, live))
    });
    exchanges.chain(queues).chain(last_resort(desired, observed)).collect()
}

fn wrong(address: Address, differences: Vec<Difference>) -> Option<WrongObject> {
    let all: BTreeSet<String> = differences.iter().map(|difference| difference.property.clone()).collect();
    let differs_alone = |name: &str| WITH.iter().any(|(one, other)| *one == name && !all.contains(*other));
    let mut differences = differences;
    // The file chooses the type of all queues but the streams.
    let is_no_stream = |it: &Difference| it.property == "x-queue-type" && it.after == Some(STREAM.into());
    differences.retain(|it| SAFETY.contains(&it.property.as_str()) || differs_alone(&it.property) || is_no_stream(it));
    (!differences.is_empty()).then_some(WrongObject { address, differences })
}

/// Finds that `unrouted` leads nowhere: what it gets, no other exchange has taken. A missing exchange or queue is missing for all
/// to see.
fn last_resort(desired: &Desired, observed: &Observed) -> Option<WrongObject> {
    let unrouted = names::unrouted(&desired.owner);
    observed.exchanges.iter().find(|live| live.name == unrouted)?;
    let live = observed.queues.iter().find(|live| live.name == unrouted)?;
    let (target, key) = (Target::Queue(unrouted.clone()), "#".to_owned());
    let binding = Binding { source: unrouted, target, key };
    // RabbitMQ 3.10 does not show the bindings of a queue whose node is down.
    let is_there = live.is_down() || observed.bindings.iter().any(|live| any(live) == binding);
    (!is_there).then(|| WrongObject { address: Address::of_binding(&binding), differences: Vec::new() })
}

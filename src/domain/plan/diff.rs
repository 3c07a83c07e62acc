//! Compares what must exist with what does.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    super::{
        compile::{Argument, Desired, OWNER},
        observed::{Arguments, LiveExchange, LiveQueue, Observed},
    },
    Action, Address, Change, Difference, Kind, Object, Plan, bindings, leftover, policies,
    shadow::Shadows,
};

/// Arguments that decide what happens to an event. Where an existing object has one of them that the file does not
/// write, that is a difference too: RabbitMQ compares them when it is asked to declare.
const DECISIVE: [&str; 12] = [
    "alternate-exchange",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-delivery-limit",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-message-ttl",
    "x-overflow",
    "x-single-active-consumer",
];

/// Compares what must exist with what does.
#[must_use]
pub fn plan(desired: &Desired, observed: &Observed) -> Plan {
    let owner = desired.owner.as_str();
    let shadows = Shadows::new(&desired.policies, observed);
    let exchanges: BTreeMap<&str, &LiveExchange> = observed.exchanges.iter().map(|e| (e.name.as_str(), e)).collect();
    let queues: BTreeMap<&str, &LiveQueue> = observed.queues.iter().map(|q| (q.name.as_str(), q)).collect();

    // The policies come first: no worker may find a queue that they do not apply to yet.
    let mut changes: Vec<Change> = desired.policies.iter().filter_map(|own| policies::change(own, observed)).collect();
    for exchange in &desired.exchanges {
        let address = Address::new(Kind::Exchange, &exchange.name);
        changes.extend(match exchanges.get(exchange.name.as_str()) {
            None => Some(Change::write(Action::Create, address, Object::Exchange(exchange.clone()))),
            Some(live) => in_the_way(owner, address, &live.arguments, exchange_differences(&exchange.arguments, live)),
        });
    }
    for queue in &desired.queues {
        let address = Address::new(Kind::Queue, &queue.name);
        let live = queues.get(queue.name.as_str()).copied();
        let kind =
            Some(&queue.arguments).and_then(|args| args.get(TYPE)).and_then(Argument::as_text).unwrap_or(CLASSIC);
        if let Some(shadow) = shadows.on(&queue.name, kind, live) {
            changes.push(Change::note(Action::Blocked, address.clone(), shadow));
        }
        changes.extend(match live {
            None => Some(Change::write(Action::Create, address, Object::Queue(queue.clone()))),
            Some(live) => in_the_way(owner, address, &live.arguments, queue_differences(&queue.arguments, live)),
        });
    }
    changes.extend(leftover::changes(desired, observed));
    changes.extend(bindings::changes(desired, observed, &changes));
    // What is to be written stays in front, in its order: policies, exchanges, queues, bindings.
    changes.sort_by_key(|change| change.action.max(Action::Change));
    Plan { owner: owner.to_owned(), changes }
}

const TYPE: &str = "x-queue-type";
const CLASSIC: &str = "classic";

/// Whether the label says that an object is this owner's.
pub(super) fn is_owned(owner: &str, arguments: &Arguments) -> bool {
    arguments.get(OWNER).and_then(Value::as_str) == Some(owner)
}

/// An object that exists: not ours, or not as the file says, or nothing to say about it.
fn in_the_way(owner: &str, address: Address, live: &Arguments, differences: Vec<Difference>) -> Option<Change> {
    if !is_owned(owner, live) {
        let whose = live.get(OWNER).and_then(Value::as_str).map_or_else(
            || format!("blocked: not owned by {owner}, needs `adopt`"),
            |other| format!("blocked: owned by {other}"),
        );
        return Some(Change::note(Action::Blocked, address, whose));
    }
    if differences.is_empty() {
        return None;
    }
    let reason = "blocked: cannot be changed in place".to_owned();
    Some(Change { differences, ..Change::note(Action::Blocked, address, reason) })
}

fn exchange_differences(desired: &BTreeMap<String, Argument>, live: &LiveExchange) -> Vec<Difference> {
    let mut all = vec![
        flag("durable", live.durable, true),
        flag("auto_delete", live.auto_delete, false),
        flag("internal", live.internal, false),
    ];
    if let Some(kind) = live.kind.as_deref() {
        all.push(difference("type", Some(&kind.into()), Some("topic".into())));
    }
    all.extend(arguments(desired, &live.arguments));
    all.into_iter().flatten().collect()
}

fn queue_differences(desired: &BTreeMap<String, Argument>, live: &LiveQueue) -> Vec<Difference> {
    let mut live_arguments = live.arguments.clone();
    // A queue that was declared without a type has the virtual host's default; the broker says which.
    if let Some(kind) = &live.kind {
        live_arguments.insert(TYPE.to_owned(), kind.as_str().into());
    }
    live_arguments.entry(TYPE.to_owned()).or_insert_with(|| CLASSIC.into());
    let mut all = vec![flag("durable", live.durable, true), flag("auto_delete", live.auto_delete, false)];
    all.extend(arguments(desired, &live_arguments));
    all.into_iter().flatten().collect()
}

fn arguments(desired: &BTreeMap<String, Argument>, live: &Arguments) -> Vec<Option<Difference>> {
    let names: BTreeSet<&str> = desired.keys().map(String::as_str).chain(DECISIVE).collect();
    names.into_iter().map(|name| difference(name, live.get(name), desired.get(name).map(Value::from))).collect()
}

fn flag(property: &str, live: Option<bool>, desired: bool) -> Option<Difference> {
    let live = Value::from(live?);
    difference(property, Some(&live), Some(desired.into()))
}

/// A difference, unless both are the same. The width of a number is not a difference, nor is `5.0` for `5`.
pub(super) fn difference(property: &str, before: Option<&Value>, after: Option<Value>) -> Option<Difference> {
    let same = match (before, &after) {
        (Some(Value::Number(before)), Some(Value::Number(after))) => {
            before == after || (before.as_i64().is_none() && before.as_f64() == after.as_f64())
        }
        (before, after) => before == after.as_ref(),
    };
    (!same).then(|| Difference { property: property.to_owned(), before: before.cloned(), after })
}

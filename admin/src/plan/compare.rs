//! Compares an object of the file with the same object on the broker.

use std::collections::{BTreeMap, BTreeSet};

use hatchery::internals::compile::{Argument, Exchange, LOCATOR, OWNER};
use serde_json::Value;

use super::Difference;
use crate::live::{Arguments, LiveExchange, LiveQueue};

/// Arguments that decide what happens to an event. If an existing object has one of them that the file does not write,
/// this is a difference too: RabbitMQ compares all of them when the object is declared again.
const DECISIVE: [&str; 13] = [
    "alternate-exchange",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-delivery-limit",
    "x-expires",
    "x-max-age",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-message-ttl",
    "x-overflow",
    "x-single-active-consumer",
];

const TYPE: &str = "x-queue-type";
pub(super) const CLASSIC: &str = "classic";

/// Returns the type of a queue with these arguments.
pub(super) fn type_of(arguments: &BTreeMap<String, Argument>) -> &str {
    arguments.get(TYPE).and_then(Argument::as_text).unwrap_or(CLASSIC)
}

pub(super) fn exchange(desired: &Exchange, live: &LiveExchange) -> Vec<Difference> {
    let mut all = vec![
        flag("durable", live.durable, true),
        flag("auto_delete", live.auto_delete, false),
        flag("internal", live.internal, false),
    ];
    if let Some(kind) = live.kind.as_deref() {
        all.push(difference("type", Some(&kind.into()), Some("topic".into())));
    }
    all.extend(arguments(&desired.arguments, &live.arguments));
    all.into_iter().flatten().collect()
}

pub(super) fn queue(desired: &BTreeMap<String, Argument>, live: &LiveQueue) -> Vec<Difference> {
    let mut live_arguments = live.arguments.clone();
    // A queue that was declared without a type has the default type of its virtual host. The management API shows it
    // outside of the arguments.
    if let Some(kind) = &live.kind {
        live_arguments.insert(TYPE.to_owned(), kind.as_str().into());
    }
    live_arguments.entry(TYPE.to_owned()).or_insert_with(|| CLASSIC.into());
    let mut all = vec![flag("durable", live.durable, true), flag("auto_delete", live.auto_delete, false)];
    all.extend(arguments(desired, &live_arguments));
    all.into_iter().flatten().collect()
}

fn arguments(desired: &BTreeMap<String, Argument>, live: &Arguments) -> Vec<Option<Difference>> {
    // Ownership is checked elsewhere, so the owner's label is left out. The leader locator matters only when a queue is
    // created: RabbitMQ would compare it if the queue were declared again, and nothing here declares an existing queue.
    let written = desired.keys().map(String::as_str).filter(|name| ![OWNER, LOCATOR].contains(name));
    let names: BTreeSet<&str> = written.chain(DECISIVE).collect();
    names.into_iter().map(|name| difference(name, live.get(name), desired.get(name).map(Value::from))).collect()
}

fn flag(property: &str, live: Option<bool>, desired: bool) -> Option<Difference> {
    let live = Value::from(live?);
    difference(property, Some(&live), Some(desired.into()))
}

/// Returns a difference unless both values are the same. The width of a number is not a difference, nor is `5.0` for
/// `5`.
pub(super) fn difference(property: &str, before: Option<&Value>, after: Option<Value>) -> Option<Difference> {
    let same = match (before, &after) {
        (Some(Value::Number(before)), Some(Value::Number(after))) => {
            before == after || (before.as_i64().is_none() && before.as_f64() == after.as_f64())
        }
        (before, after) => before == after.as_ref(),
    };
    (!same).then(|| Difference { property: property.to_owned(), before: before.cloned(), after })
}

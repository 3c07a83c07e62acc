//! What is on the broker and not in the file: ours stays, strangers' is left alone.

use std::{collections::BTreeSet, time::Duration};

use super::{
    super::{
        compile::Desired,
        names,
        observed::{Arguments, LiveQueue, Observed},
        ttl::Ttl,
    },
    Action, Address, Change, Kind,
    diff::is_owned,
};

pub(super) fn changes(desired: &Desired, observed: &Observed) -> Vec<Change> {
    let exchanges: BTreeSet<&str> = desired.exchanges.iter().map(|exchange| exchange.name.as_str()).collect();
    let queues: BTreeSet<&str> = desired.queues.iter().map(|queue| queue.name.as_str()).collect();
    let bound: BTreeSet<&str> = observed
        .bindings
        .iter()
        .filter(|binding| !binding.source.is_empty())
        .flat_map(|binding| [binding.source.as_str(), binding.destination.as_str()])
        .collect();
    let change = |kind, name: &str, arguments: &Arguments, detail: String| {
        let address = Address::new(kind, name);
        if is_owned(&desired.owner, arguments) {
            let bound = if bound.contains(name) { ", still bound" } else { "" };
            Change::note(Action::Leftover, address, format!("leftover{bound}{detail}"))
        } else {
            Change::note(Action::Ignored, address, "not owned, ignored".to_owned())
        }
    };
    // The broker's own; and the lock is there while it is looked at.
    let lock = names::lock(&desired.owner);
    let foreign = |name: &str| !name.is_empty() && !name.starts_with("amq.") && name != lock;
    let exchanges = observed.exchanges.iter().filter(|live| foreign(&live.name) && !exchanges.contains(&*live.name));
    let queues = observed.queues.iter().filter(|live| foreign(&live.name) && !queues.contains(&*live.name));
    exchanges
        .map(|live| change(Kind::Exchange, &live.name, &live.arguments, String::new()))
        .chain(queues.map(|live| change(Kind::Queue, &live.name, &live.arguments, holds(live))))
        .collect()
}

/// What a queue holds, and for how long at most: ` (412 ready, at most 5m)`.
fn holds(live: &LiveQueue) -> String {
    // The broker counts late, and not at all where its metrics are off: no count is not 0.
    let ready = live.messages_ready.map_or_else(|| "ready unknown".to_owned(), |ready| format!("{ready} ready"));
    let millis = live.arguments.get("x-message-ttl").and_then(serde_json::Value::as_u64);
    match millis.and_then(|millis| Ttl::new(Duration::from_millis(millis)).ok()) {
        Some(ttl) => format!(" ({ready}, at most {ttl})"),
        None => format!(" ({ready})"),
    }
}

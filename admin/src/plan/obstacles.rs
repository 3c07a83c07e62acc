//! Explains what keeps each leftover that pruning could not remove, so that a person knows what to do or to wait for.

use std::time::Duration;

use hatchery::internals::{
    compile::Desired,
    ttl::{Ttl, say},
};

use super::{Action, Address, Kind, Plan, prune::Pruning, view::View};
use crate::{
    live::{LiveQueue, Observed},
    text::count,
};

/// Returns each leftover of this plan with what keeps it. The bindings of a leftover are not listed: they share its
/// fate.
#[must_use]
pub fn obstacles(desired: &Desired, observed: &Observed, plan: &Plan) -> Vec<(Address, String)> {
    let view = View::new(desired, observed);
    let pruning = Pruning::new(&view, &plan.changes);
    let left = plan.changes.iter().filter(|change| change.action == Action::Leftover && change.part_of.is_none());
    left.map(|change| (change.address.clone(), cause(&view, &pruning, &change.address))).collect()
}

fn cause(view: &View<'_>, pruning: &Pruning<'_>, address: &Address) -> String {
    let name = &address.name;
    let found = match address.kind {
        Kind::Queue => view.queue(name).and_then(|live| queue(view, pruning, live)),
        Kind::Exchange => pruning.reached(name).map(|by| format!("{by} leads to it")),
        Kind::Policy => pruning.applied(name).map(|queue| format!("the queue {queue} still uses it")),
        Kind::Binding => None,
    };
    found.unwrap_or_else(|| "not proved empty within --drain-timeout; prune again".to_owned())
}

fn queue(view: &View<'_>, pruning: &Pruning<'_>, live: &LiveQueue) -> Option<String> {
    if live.is_down() {
        return Some("its node is down".to_owned());
    }
    if pruning.is_moved(&live.name) {
        return Some("its messages are not moved yet; apply with --migrate".to_owned());
    }
    let of_type = || {
        let other = pruning.worked(&live.name)?;
        Some(format!("its type is still in use: {} {}", other.name, use_of(other)?))
    };
    // The bindings from exchanges that stay are removed first, so these are all that is left.
    let bound = || {
        let from = view.to_queue(&live.name).first()?;
        Some(if pruning.goes(Kind::Exchange, &from.source) {
            format!("the leftover exchange {} has to go first", from.source)
        } else {
            format!("a binding from {} leads to it, which apply does not own", from.source)
        })
    };
    use_of(live).or_else(of_type).or_else(bound)
}

/// Returns what a queue is in use for, or `None` if it has no message and no consumer for certain.
fn use_of(live: &LiveQueue) -> Option<String> {
    let ttl = live.ttl_millis().and_then(|millis| Ttl::new(Duration::from_millis(millis)).ok());
    match (live.events(), live.consumers) {
        (None, _) => Some("has an unknown number of messages".to_owned()),
        (Some(held @ 1..), _) => Some(match ttl {
            Some(ttl) => format!("holds {}, for up to {}", count(held, "message"), say(ttl.as_duration())),
            None => format!("holds {}, for a worker or a person", count(held, "message")),
        }),
        (Some(0), None) => Some("has an unknown number of consumers".to_owned()),
        (Some(0), Some(consumers @ 1..)) => Some(format!("has {}", count(consumers, "consumer"))),
        (Some(0), Some(0)) => None,
    }
}

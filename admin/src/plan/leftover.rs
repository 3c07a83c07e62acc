//! Lists the objects on the broker that are not in the file. Owned objects are leftovers; all others are ignored.

use std::collections::BTreeSet;

use super::{Action, Address, Change, Kind, MessageCount, Need, view::View};
use crate::{live::Arguments, names};

/// Returns the leftover and ignored objects, without those that a migration has made and will remove.
pub(super) fn changes(view: &View<'_>) -> Vec<Change> {
    but(view, |kind, name| stands_in(view, kind, name))
}

/// Returns the leftover and ignored objects, those of a migration included.
pub(super) fn everything(view: &View<'_>) -> Vec<Change> {
    but(view, |_, _| false)
}

fn but(view: &View<'_>, stands_in: impl Fn(Kind, &str) -> bool) -> Vec<Change> {
    let observed = view.observed;
    let bound: BTreeSet<&str> = observed
        .bindings
        .iter()
        .filter(|binding| !binding.source.is_empty())
        .flat_map(|binding| [binding.source.as_str(), binding.destination.as_str()])
        .collect();
    let change = |kind, name: &str, arguments: &Arguments, held: Option<MessageCount>| {
        let address = Address::new(kind, name);
        if view.owns(name, arguments) {
            let bound = if bound.contains(name) { ", still bound" } else { "" };
            let note = Change::note(Action::Leftover, address, format!("leftover{bound}"));
            Change { held, needs: Some(Need::Prune), ..note }
        } else {
            Change::note(Action::Ignored, address, "not owned, ignored".to_owned())
        }
    };
    let locks = view.desired.owners().flat_map(|owner| [names::lock(owner), names::control_lock(owner)]);
    let locks: BTreeSet<String> = locks.collect();
    let is_leftover = |kind, name: &str| {
        // RabbitMQ's own objects are skipped, and so are the locks, which a running `apply` or `pause` holds.
        !name.is_empty()
            && !name.starts_with("amq.")
            && !locks.contains(name)
            && !view.wants(&Address::new(kind, name))
            && !stands_in(kind, name)
    };
    let exchanges = observed.exchanges.iter().filter(|live| is_leftover(Kind::Exchange, &live.name));
    let queues = observed.queues.iter().filter(|live| is_leftover(Kind::Queue, &live.name));
    let wanted = |name: &str| view.desired.policies.iter().any(|own| own.name == name);
    let ours: BTreeSet<String> = view.desired.owners().flat_map(names::policies).collect();
    let policies = observed.policies.iter().filter(|live| ours.contains(&live.name) && !wanted(&live.name));
    exchanges
        .map(|live| change(Kind::Exchange, &live.name, &live.arguments, None))
        .chain(queues.map(|live| change(Kind::Queue, &live.name, &live.arguments, MessageCount::of(live))))
        .chain(policies.map(|live| Change {
            needs: Some(Need::Prune),
            ..Change::note(Action::Leftover, Address::new(Kind::Policy, &live.name), "leftover".to_owned())
        }))
        .collect()
}

/// Whether a migration has made this object and will remove it.
fn stands_in(view: &View<'_>, kind: Kind, name: &str) -> bool {
    match kind {
        // The stand-in of a queue that the file no longer asks for is emptied by a migration too.
        Kind::Queue => view.stands_in_for(name).is_some(),
        Kind::Exchange => names::moved(&view.desired.owner, name).is_some_and(|queue| {
            let is_renamed = view.desired.renames.iter().any(|rename| rename.from == queue);
            view.wanted_queue(queue).is_some() || (is_renamed && view.queue(queue).is_some())
        }),
        Kind::Binding | Kind::Policy => false,
    }
}

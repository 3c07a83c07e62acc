//! Finds the bindings that the file does not ask for, and those of them that bring a queue events which are not meant for it.

use std::collections::BTreeSet;

use hatchery::internals::compile::{Binding, Desired, Rename, Target};

use super::{
    Address, Kind,
    view::{View, any, plain, target},
};
use crate::{
    live::{LiveBinding, Observed},
    names,
};

/// A binding that the file does not ask for, and that begins or ends at an object of the topology.
pub(super) enum Unasked {
    /// The other end is an object of somebody else.
    Foreign,
    /// Both ends are owned, and somebody has made it with arguments. RabbitMQ tells bindings apart by their arguments too, so this
    /// one cannot be removed by its key alone.
    WithArguments,
    /// Both ends are owned, and `--prune` removes it.
    Leftover,
}

/// The bindings that the file asks for.
pub(super) struct AskedFor<'a> {
    view: &'a View<'a>,
    bindings: BTreeSet<Binding>,
    owned: BTreeSet<Address>,
}

impl<'a> AskedFor<'a> {
    pub(super) fn of(view: &'a View<'_>) -> Self {
        let renames = view.desired.renames.iter().map(Rename::binding);
        let bindings = view.desired.bindings.iter().cloned().chain(renames).collect();
        Self { view, bindings, owned: view.owned() }
    }

    /// Returns what a binding may do that the file does not ask for. `None` for all others, and for those of the default exchange and
    /// of a migration.
    pub(super) fn unasked(&self, live: &LiveBinding) -> Option<Unasked> {
        let ends = [Address::new(Kind::Exchange, &live.source), target(live)];
        let is_asked_for = plain(live).is_some_and(|binding| self.bindings.contains(&binding));
        let is_of_migration = || ends.iter().any(|end| self.view.stands_in_for(&end.name).is_some());
        if live.source.is_empty() || is_asked_for || is_of_migration() {
            return None;
        }
        match ends.iter().filter(|end| self.owned.contains(end)).count() {
            0 => None,
            1 => Some(Unasked::Foreign),
            _ if live.arguments.is_empty() => Some(Unasked::Leftover),
            _ => Some(Unasked::WithArguments),
        }
    }
}

/// Returns the bindings to a queue of the file that the file does not ask for: those between objects of the topology, and those by
/// which somebody else's exchange brings a type's queue events of other types. A binding that leads to a leftover queue, or belongs
/// to a migration, goes with it. Each has whether `--prune` removes it.
#[must_use]
pub fn misrouting(desired: &Desired, observed: &Observed) -> Vec<(Address, bool)> {
    let view = View::new(desired, observed);
    let asked_for = AskedFor::of(&view);
    let misroutes = |live: &LiveBinding| {
        let (unasked, binding) = (asked_for.unasked(live)?, any(live));
        let Target::Queue(queue) = &binding.target else { return None };
        if view.wanted_queue(queue).is_none() || names::marked_register(&binding.key).is_some() {
            return None;
        }
        let word = binding.key.split('.').next().unwrap_or_default();
        let is_of = |event_type| live.arguments.is_empty() && word == event_type;
        let is_of_types = |word| desired.queues.iter().any(|queue| names::consumed_type(&queue.name) == Some(word));
        // Somebody may bring a type what no other type of the file is meant to have.
        let fits = names::consumed_type(queue).is_none_or(is_of) || !(["#", "*"].contains(&word) || is_of_types(word));
        let is_harmless = matches!(unasked, Unasked::Foreign) && fits;
        (!is_harmless).then(|| (Address::of_binding(&binding), matches!(unasked, Unasked::Leftover)))
    };
    observed.bindings.iter().filter_map(misroutes).collect()
}

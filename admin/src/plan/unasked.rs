//! Knows the bindings that the file does not ask for, and what they may do.

use std::collections::BTreeSet;

use hatchery::internals::compile::{Binding, Rename};

use super::{
    Address, Kind,
    view::{View, plain, target},
};
use crate::live::LiveBinding;

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

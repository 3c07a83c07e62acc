//! A plan: every difference, in the order in which it is written.

use std::collections::BTreeSet;

use hatchery::internals::{names, words::EventType};
use serde::Serialize;

use super::{
    change::{Action, Address, Change, Kind, Object},
    step::Step,
};

/// Ordered changes: dead-letter targets before what leads to them.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Whose plan it is.
    pub owner: String,
    /// Everything that differs.
    pub changes: Vec<Change>,
    /// What comes next of the migrations, where they are asked for. Afterwards it is planned again.
    pub migration: Vec<Step>,
    /// What comes next of pruning, where it is asked for. Afterwards it is planned again.
    pub pruning: Vec<Step>,
}

/// How many there are of each. A binding that comes or stays with an object counts with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// To be created.
    pub add: usize,
    /// To be put back.
    pub change: usize,
    /// To be migrated.
    pub migrate: usize,
    /// Owned, and no longer in the file.
    pub leftover: usize,
    /// In the way.
    pub blocked: usize,
    /// Strangers' policies that win on owned queues, and do no harm.
    pub shadowing: usize,
    /// Not owned.
    pub ignored: usize,
}

impl Plan {
    /// How many there are of each.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for change in self.changes.iter().filter(|change| change.part_of.is_none()) {
            *match change.action {
                Action::Create => &mut counts.add,
                Action::Change => &mut counts.change,
                Action::Migrate => &mut counts.migrate,
                Action::Leftover => &mut counts.leftover,
                Action::Blocked => &mut counts.blocked,
                Action::Shadowing => &mut counts.shadowing,
                Action::Ignored => &mut counts.ignored,
            } += 1;
        }
        counts
    }

    /// Whether something stands in the way, so that nothing may be written; what can be migrated too, unless that is
    /// asked for.
    #[must_use]
    pub fn is_blocked(&self, migrate: bool) -> bool {
        self.has(Action::Blocked) || (!migrate && self.has(Action::Migrate))
    }

    /// Adds what stands in the way of all of it: somebody else has the same keys in Redis.
    pub fn block(&mut self, why: &str) {
        let unrouted = Address::new(Kind::Exchange, &names::unrouted(&self.owner));
        self.changes.push(Change::note(Action::Blocked, unrouted, format!("blocked: {why}")));
    }

    fn has(&self, action: Action) -> bool {
        self.changes.iter().any(|change| change.action == action)
    }

    /// The types that the broker has bindings or queues of, and that the file does not ask for. Their names are those that
    /// their events carry; a type of the file is among them where it had another name.
    #[must_use]
    pub fn left_types(&self) -> BTreeSet<EventType> {
        let leftover = self.changes.iter().filter(|change| change.action == Action::Leftover);
        let of_type = leftover.filter_map(|change| match &change.object {
            Some(Object::Binding(binding)) if names::is_processor(&binding.source) => binding.key.strip_suffix(".#"),
            _ if change.address.kind == Kind::Queue => names::type_of(&change.address.name),
            _ => None,
        });
        of_type.filter_map(|name| name.parse().ok()).collect()
    }

    /// Whether the broker is as the file says. Leftovers stay bound and working, so they don't count.
    #[must_use]
    pub fn in_sync(&self) -> bool {
        !self.is_blocked(false) && self.to_write().next().is_none()
    }

    /// What is to be written, in this order: policies, then all of `unrouted`, then the rest as it stands here. Whoever
    /// publishes to an exchange that has no bindings yet must find the alternate exchange at work: measured, a publisher's
    /// events were confirmed and gone.
    pub fn to_write(&self) -> impl Iterator<Item = &Change> {
        let unrouted = names::unrouted(&self.owner);
        let is_written = |change: &&Change| matches!(change.action, Action::Create | Action::Change);
        let mut changes: Vec<&Change> = self.changes.iter().filter(is_written).collect();
        changes.sort_by_key(|change| match &change.object {
            Some(Object::Policy(_)) => 0,
            Some(Object::Binding(binding)) if binding.source == unrouted => 1,
            _ if change.address.name == unrouted => 1,
            _ => 2,
        });
        changes.into_iter()
    }
}

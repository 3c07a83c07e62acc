//! A plan: every difference, in the order in which the objects are written.

use std::collections::BTreeSet;

use hatchery::EventType;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    change::{Action, Address, Change, Kind, Object},
    step::Step,
};
use crate::names;

/// The ordered changes: a dead-letter target comes before the objects that lead to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The name of the topology.
    pub owner: String,
    /// Every difference.
    pub changes: Vec<Change>,
    /// The next steps of the migrations, for `--migrate`. After them a new plan is made.
    pub migration: Vec<Step>,
    /// The next steps of pruning, for `--prune`. After them a new plan is made.
    pub pruning: Vec<Step>,
}

/// The number of changes by action. A binding that comes or stays with an object counts with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counts {
    /// Objects to create.
    pub add: usize,
    /// Objects to put back.
    pub change: usize,
    /// Queues to migrate.
    pub migrate: usize,
    /// Objects that are owned and no longer in the file.
    pub leftover: usize,
    /// Objects that block the plan.
    pub blocked: usize,
    /// Warnings that do not block the plan, such as a stranger's policy that wins on owned queues and does no harm.
    pub shadowing: usize,
    /// Objects that are not owned.
    pub ignored: usize,
}

impl Plan {
    /// Returns what makes two plans equal: their changes, without the messages that a queue holds, and without objects of other
    /// owners.
    pub fn compared(&self) -> impl Iterator<Item = Change> {
        let changes = self.changes.iter().filter(|change| change.action != Action::Ignored);
        changes.map(|change| Change { held: None, ..change.clone() })
    }

    /// Whether both plans have equal [changes](Self::compared).
    #[must_use]
    pub fn has_changes_of(&self, other: &Self) -> bool {
        self.compared().eq(other.compared())
    }

    /// Counts the changes by action.
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

    /// Whether the plan is blocked, so that nothing may be written. A queue that needs migration blocks it too, unless
    /// `migrate` is set.
    #[must_use]
    pub fn is_blocked(&self, migrate: bool) -> bool {
        self.has(Action::Blocked) || (!migrate && self.has(Action::Migrate))
    }

    /// Adds a change that blocks the whole plan, because another topology has the same keys in Redis.
    pub fn block(&mut self, why: &str) {
        let unrouted = Address::new(Kind::Exchange, &names::unrouted(&self.owner));
        self.changes.push(Change::note(Action::Blocked, unrouted, format!("blocked: {why}")));
    }

    fn has(&self, action: Action) -> bool {
        self.changes.iter().any(|change| change.action == action)
    }

    /// Returns the types that have leftover queues or processor bindings: those that the broker has and the file does
    /// not ask for. These are the names that the events carry; for a renamed type it is the former name.
    #[must_use]
    pub fn left_types(&self) -> BTreeSet<EventType> {
        let leftover = self.changes.iter().filter(|change| change.action == Action::Leftover);
        let of_type = leftover.filter_map(|change| match &change.object {
            Some(Object::Binding(binding)) if names::is_processor(&binding.source) => binding.key.strip_suffix(".#"),
            // The dead letters of a source are no events, and its name is no type.
            _ if names::source_of_dead_letters(&change.address.name).is_some() => None,
            _ if change.address.kind == Kind::Queue => names::type_of(&change.address.name),
            _ => None,
        });
        of_type.filter_map(|name| name.parse().ok()).collect()
    }

    /// Whether the broker is as the file says. Leftovers stay bound and working, so they do not count.
    #[must_use]
    pub fn in_sync(&self) -> bool {
        !self.is_blocked(false) && self.to_write().next().is_none()
    }

    /// Returns the changes to write, in this order: policies, then all objects of `unrouted`, then the rest in the
    /// order of the plan. An event that is published to an exchange without bindings must find a working alternate
    /// exchange: measured, a publisher's events were confirmed and lost.
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

//! Finds bindings that bring a queue events which are not meant for it.

use hatchery::internals::compile::{Desired, Target};

use super::{
    Address,
    unasked::{AskedFor, Unasked},
    view::{View, any},
};
use crate::{
    live::{LiveBinding, Observed},
    names,
};

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

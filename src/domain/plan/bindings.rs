//! Bindings: missing ones come with what they bind, or are put back; those that nobody asks for stay.

use std::collections::BTreeSet;

use super::{
    super::{
        compile::{Binding, Desired, Target},
        names,
        observed::{LiveBinding, Observed},
    },
    Action, Address, Change, Kind, Object,
    diff::is_owned,
};

/// What is to be said about bindings, given what was said about exchanges and queues.
pub(super) fn changes(desired: &Desired, observed: &Observed, objects: &[Change]) -> Vec<Change> {
    let there: BTreeSet<Binding> = observed.bindings.iter().filter_map(plain).collect();
    let wanted: BTreeSet<&Binding> = desired.bindings.iter().collect();
    let created = Ends::of(Action::Create, objects, &desired.owner);
    let blocked = Ends::of(Action::Blocked, objects, &desired.owner);
    let leftover = Ends::of(Action::Leftover, objects, &desired.owner);

    let missing = desired.bindings.iter().filter(|binding| !there.contains(binding)).filter_map(|binding| {
        // What stands in the way says enough.
        if blocked.touched_by(binding) {
            return None;
        }
        let object = Object::Binding(binding.clone());
        Some(match created.of_binding(binding) {
            Some(whole) => Change { part_of: Some(whole), ..Change::write(Action::Create, address(binding), object) },
            None => Change {
                reason: Some("missing, put back".to_owned()),
                ..Change::write(Action::Change, address(binding), object)
            },
        })
    });
    let owned = owned(desired, observed);
    let others = observed.bindings.iter().filter(|live| !live.source.is_empty()).filter_map(|live| {
        // A topic exchange ignores arguments, but they make it another binding.
        if plain(live).is_some_and(|binding| wanted.contains(&binding)) {
            return None;
        }
        let binding = any(live);
        let (source, target) = (source(&binding), target(&binding));
        if !owned.contains(&source) && !owned.contains(&target) {
            return None;
        }
        if !owned.contains(&source) || !owned.contains(&target) {
            let reason = "not owned, ignored".to_owned();
            return Some(Change::note(Action::Ignored, address(&binding), reason));
        }
        let change = Change::note(Action::Leftover, address(&binding), "leftover, still routes".to_owned());
        Some(Change { part_of: leftover.of_binding(&binding), ..change })
    });
    missing.chain(others).collect()
}

/// The exchanges and queues to which the same thing happens.
struct Ends<'a> {
    addresses: BTreeSet<&'a Address>,
    owner: &'a str,
}

impl<'a> Ends<'a> {
    fn of(action: Action, objects: &'a [Change], owner: &'a str) -> Self {
        Self { addresses: objects.iter().filter(|c| c.action == action).map(|c| &c.address).collect(), owner }
    }

    fn touched_by(&self, binding: &Binding) -> bool {
        self.addresses.contains(&source(binding)) || self.addresses.contains(&target(binding))
    }

    /// The one that this binding goes with: the ladder that its key names, where it leads to, or where it comes from. A
    /// ladder also has a binding between two exchanges that are not its own.
    fn of_binding(&self, binding: &Binding) -> Option<Address> {
        let ladder = || {
            let word = binding.key.split('.').nth(1)?;
            let level = Address::new(Kind::Queue, &names::ladder_level(self.owner, word, 0));
            Some(level)
        };
        [ladder(), Some(target(binding)), Some(source(binding))]
            .into_iter()
            .flatten()
            .find(|address| self.addresses.contains(address))
    }
}

/// Every exchange and queue that carries our label.
fn owned(desired: &Desired, observed: &Observed) -> BTreeSet<Address> {
    let exchanges = observed.exchanges.iter().map(|live| (Kind::Exchange, &live.name, &live.arguments));
    let queues = observed.queues.iter().map(|live| (Kind::Queue, &live.name, &live.arguments));
    exchanges
        .chain(queues)
        .filter(|(_, _, arguments)| is_owned(&desired.owner, arguments))
        .map(|(kind, name, _)| Address::new(kind, name))
        .collect()
}

/// The binding, unless it has arguments: ours have none.
fn plain(live: &LiveBinding) -> Option<Binding> {
    live.arguments.is_empty().then(|| any(live))
}

fn any(live: &LiveBinding) -> Binding {
    let name = live.destination.clone();
    let target = if live.destination_type == "exchange" { Target::Exchange(name) } else { Target::Queue(name) };
    Binding { source: live.source.clone(), target, key: live.routing_key.clone() }
}

fn source(binding: &Binding) -> Address {
    Address::new(Kind::Exchange, &binding.source)
}

fn target(binding: &Binding) -> Address {
    let kind = match binding.target {
        Target::Exchange(_) => Kind::Exchange,
        Target::Queue(_) => Kind::Queue,
    };
    Address::new(kind, binding.target.name())
}

fn address(binding: &Binding) -> Address {
    Address { kind: Kind::Binding, name: format!("{} -> {} ({})", binding.source, binding.target.name(), binding.key) }
}

//! Compares bindings. A missing binding is created together with its exchange or queue, or put back if both exist. A
//! binding that the file does not ask for stays until it is pruned.

use std::collections::BTreeSet;

use hatchery::internals::compile::{Binding, Rename, Target};

use super::{
    Action, Address, Change, Kind, Need, Object,
    unasked::{AskedFor, Unasked},
    view::{View, any, plain},
};
use crate::{live::LiveQueue, names};

/// Returns the changes of the bindings. `objects` are the changes of the exchanges and queues, found before.
pub(super) fn changes(view: &View<'_>, objects: &[Change]) -> Vec<Change> {
    let desired = view.desired;
    let there: BTreeSet<Binding> = view.observed.bindings.iter().filter_map(plain).collect();
    let home: Vec<Binding> =
        desired.renames.iter().filter(|rename| leads_home(view, rename)).map(Rename::binding).collect();
    let created = Ends::of(Action::Create, objects, &desired.owner);
    let blocked = [Action::Blocked, Action::Migrate].map(|action| Ends::of(action, objects, &desired.owner));
    let leftover = Ends::of(Action::Leftover, objects, &desired.owner);
    let missing = desired.bindings.iter().chain(&home).filter(|binding| !there.contains(binding));
    let is_down = |name: &str| view.queue(name).is_some_and(LiveQueue::is_down);
    let (hidden, missing): (Vec<&Binding>, Vec<&Binding>) =
        missing.partition(|binding| matches!(&binding.target, Target::Queue(name) if is_down(name)));
    let hidden: BTreeSet<Address> = hidden.into_iter().map(|binding| Address::of_target(&binding.target)).collect();
    let hidden = hidden.into_iter().map(|address| {
        let why = "blocked: its node is down, and RabbitMQ does not show its bindings";
        Change::note(Action::Blocked, address, why.to_owned())
    });
    let missing = missing.into_iter().filter_map(|binding| {
        // The change of the blocked or migrated object is reported already.
        if blocked.iter().any(|blocked| blocked.touched_by(binding)) && !is_last_resort(view, binding) {
            return None;
        }
        let (address, object) = (Address::of_binding(binding), Object::Binding(binding.clone()));
        if let Some(whole) = created.of_binding(binding) {
            return Some(Change { part_of: Some(whole), ..Change::write(Action::Create, address, object) });
        }
        let reason = other_register(&there, binding).unwrap_or_else(|| "missing, put back".to_owned());
        Some(Change { reason: Some(reason), ..Change::write(Action::Change, address, object) })
    });
    let asked_for = AskedFor::of(view);
    let others = view.observed.bindings.iter().filter_map(|live| {
        let (unasked, binding) = (asked_for.unasked(live)?, any(live));
        let address = Address::of_binding(&binding);
        let why = match unasked {
            Unasked::Foreign => return Some(Change::note(Action::Ignored, address, "not owned, ignored".to_owned())),
            Unasked::WithArguments => {
                let why = "still routes; it has arguments, so hatchery did not create it and does not remove it";
                return Some(Change::note(Action::Shadowing, address, why.to_owned()));
            }
            Unasked::Leftover => match names::marked_register(&binding.key) {
                Some(before) => format!("leftover, marks the former register ({before})"),
                None => "leftover, still routes".to_owned(),
            },
        };
        let part_of = leftover.of_binding(&binding).or_else(|| migrated(&blocked, &binding));
        let note = Change::note(Action::Leftover, address, why);
        Some(Change { part_of, object: Some(Object::Binding(binding)), needs: Some(Need::Prune), ..note })
    });
    missing.chain(hidden).chain(others).chain(shared_registers(view)).collect()
}

/// Reports each other topology whose mark names the same keys in Redis. Each of the two would drop events of the other.
fn shared_registers<'a>(view: &'a View<'_>) -> impl Iterator<Item = Change> + 'a {
    let own = view.desired.bindings.iter().filter(|binding| names::marked_register(&binding.key).is_some());
    let others = own.flat_map(|own| {
        let same = view.observed.bindings.iter().filter(|live| names::mark_one_register(&own.key, &live.routing_key));
        same.filter_map(|live| Some((names::owner_of_unrouted(&live.source)?, &live.routing_key)))
    });
    others.filter(|(other, _)| view.desired.owners().all(|owner| owner != *other)).filter_map(|(other, mark)| {
        let keys = names::marked_register(mark)?;
        let why = format!(
            "blocked: the topology {other} has the same keys in Redis ({keys}), and each would drop events of the other; set another \
             `redis: {{ prefix: … }}`"
        );
        Some(Change::note(Action::Blocked, Address::new(Kind::Exchange, &names::unrouted(&view.desired.owner)), why))
    })
}

/// Whether events with a former type name should go to the queue with the present name already: the former queue is no
/// longer bound.
fn leads_home(view: &View<'_>, rename: &Rename) -> bool {
    let is_there = |name: &str| view.exchange(name).is_some_and(|live| view.owns(name, &live.arguments));
    let source = Address::new(Kind::Exchange, &rename.source);
    (view.wants(&source) || is_there(&rename.source))
        && !view.queue(&rename.from).is_some_and(LiveQueue::is_down)
        && !view.to_queue(&rename.from).iter().any(|live| live.source == rename.source)
}

/// Whether `unrouted` has no queue at all without this binding, not even a stand-in, so that unroutable messages would
/// be lost. Such a binding does not wait for the migration of its queue, because exchanges are written before the
/// migration.
fn is_last_resort(view: &View<'_>, binding: &Binding) -> bool {
    let routes = |key: &str| names::marked_register(key).is_none();
    binding.source == names::unrouted(&view.desired.owner)
        && routes(&binding.key)
        && !view.observed.bindings.iter().any(|live| live.source == binding.source && routes(&live.routing_key))
        && view.queue(binding.target.name()).is_some_and(|live| view.owns(&live.name, &live.arguments))
}

/// Explains a missing mark beside another mark: the register had another prefix, name or number of shards.
fn other_register(there: &BTreeSet<Binding>, missing: &Binding) -> Option<String> {
    names::marked_register(&missing.key)?;
    let before = there.iter().filter(|binding| binding.source == missing.source);
    let before = before.filter_map(|binding| names::marked_register(&binding.key)).collect::<Vec<_>>();
    (!before.is_empty()).then(|| {
        let before = before.join(" or ");
        format!("the register was {before}: its keys are not read any more, as if Redis were emptied")
    })
}

/// The migration switches the bindings of a migrated queue, so they are reported as part of it.
fn migrated(blocked: &[Ends<'_>; 2], binding: &Binding) -> Option<Address> {
    let target = Address::of_target(&binding.target);
    blocked[1].addresses.contains(&target).then_some(target)
}

/// The exchanges and queues that have the same action in the plan.
struct Ends<'a> {
    addresses: BTreeSet<&'a Address>,
    owner: &'a str,
}

impl<'a> Ends<'a> {
    fn of(action: Action, objects: &'a [Change], owner: &'a str) -> Self {
        Self { addresses: objects.iter().filter(|c| c.action == action).map(|c| &c.address).collect(), owner }
    }

    fn touched_by(&self, binding: &Binding) -> bool {
        self.addresses.contains(&source(binding)) || self.addresses.contains(&Address::of_target(&binding.target))
    }

    /// Returns the object that this binding is created or removed with: the ladder that its key names, else its target,
    /// else its source. A ladder also has a binding between two exchanges that are not part of the ladder.
    fn of_binding(&self, binding: &Binding) -> Option<Address> {
        let ladder = || {
            let whole = names::ladder_named(self.owner, binding.key.split('.').nth(1)?);
            let begin = &Address::new(Kind::Queue, &format!("{whole}."));
            let level = self.addresses.range::<&Address, _>(begin..).next()?;
            (level.kind == Kind::Queue && names::ladder_of(&level.name) == Some(&*whole)).then(|| (*level).clone())
        };
        let ends = || [Address::of_target(&binding.target), source(binding)];
        ladder().or_else(|| ends().into_iter().find(|address| self.addresses.contains(address)))
    }
}

fn source(binding: &Binding) -> Address {
    Address::new(Kind::Exchange, &binding.source)
}

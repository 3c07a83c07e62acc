//! Plans the destruction of a topology: all objects that it owns, and nothing else.
//!
//! A destruction is pruning with a file that asks for nothing. Its order is that of pruning: an object is deleted
//! before the objects that it leads to.

use std::collections::BTreeSet;

use hatchery::internals::compile::Desired;

use super::{
    Action, Address, Change, Kind, Plan, Step, leftover, prune,
    view::{View, target},
};
use crate::live::{LiveQueue, Observed};

/// The objects to delete, and the reasons that block it.
#[derive(Clone, Debug, PartialEq)]
pub struct Destruction {
    /// Every owned object: `Leftover` if it may be deleted, `Blocked` if that needs force.
    pub plan: Plan,
    /// The exchanges that nothing leads to, such as the scheduler. They are deleted before the queues are proved empty,
    /// so that nothing more comes in.
    pub entries: Vec<Step>,
    /// All other steps, in their order.
    pub rest: Vec<Step>,
}

impl Destruction {
    /// Returns the names of the queues that are deleted.
    pub fn queues(&self) -> impl Iterator<Item = &str> {
        let queues = self.plan.changes.iter().filter(|change| change.address.kind == Kind::Queue);
        queues.map(|change| change.address.name.as_str())
    }
}

/// Plans which objects are deleted, and in which order. With `force` nothing blocks it.
#[must_use]
pub fn destruction(desired: &Desired, observed: &Observed, force: bool) -> Destruction {
    let nothing = Desired {
        exchanges: Vec::new(),
        queues: Vec::new(),
        bindings: Vec::new(),
        policies: Vec::new(),
        renames: Vec::new(),
        ..desired.clone()
    };
    let view = View::new(&nothing, observed);
    let owned = view.owned();
    let obstacle = |address: &Address| if force { None } else { obstacle(&view, &owned, address) };
    let mut changes: Vec<Change> = everything(&view)
        .into_iter()
        .map(|change| match obstacle(&change.address) {
            None => Change { reason: None, needs: None, ..change },
            Some(reason) => Change { action: Action::Blocked, reason: Some(reason), needs: None, ..change },
        })
        .collect();
    changes.sort_by_key(|change| change.action);
    let (entries, rest) = order(&nothing, &view);
    let plan = Plan { owner: desired.owner.clone(), changes, migration: Vec::new(), pruning: Vec::new() };
    Destruction { plan, entries, rest }
}

/// Returns every owned object, those that a migration has made included.
fn everything(view: &View<'_>) -> Vec<Change> {
    let all = leftover::everything(view).into_iter();
    all.filter(|change| change.action == Action::Leftover).collect()
}

/// Returns the reason why an object must not be deleted without force.
fn obstacle(view: &View<'_>, owned: &BTreeSet<Address>, address: &Address) -> Option<String> {
    let stranger = view.to(address).iter().find(|live| !owned.contains(&Address::new(Kind::Exchange, &live.source)));
    if let Some(stranger) = stranger {
        return Some(format!("the exchange {}, which is not owned, is bound to it", stranger.source));
    }
    match address.kind {
        Kind::Queue => view.queue(&address.name).and_then(in_use),
        Kind::Exchange => {
            let mut strangers = view.observed.queues.iter().filter(|live| !view.owns(&live.name, &live.arguments));
            let dead_letters = |live: &&LiveQueue| live.text("x-dead-letter-exchange") == Some(&address.name);
            strangers
                .find(dead_letters)
                .map(|live| format!("the queue {}, which is not owned, dead-letters to it", live.name))
        }
        Kind::Binding | Kind::Policy => None,
    }
}

/// An unknown count is not 0. The number of messages itself is printed from `Change::held`.
fn in_use(live: &LiveQueue) -> Option<String> {
    if live.is_stream() {
        // It holds no events, and who reads it takes nothing.
        return None;
    }
    let messages = match live.messages {
        Some(0) => None,
        Some(_) => Some("not empty".to_owned()),
        None => Some("its number of messages is unknown".to_owned()),
    };
    let consumers = match live.consumers {
        Some(0) => None,
        Some(1) => Some("has 1 consumer".to_owned()),
        Some(n) => Some(format!("has {n} consumers")),
        None => Some("its consumers are unknown".to_owned()),
    };
    let reasons: Vec<String> = [messages, consumers].into_iter().flatten().collect();
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

/// Prunes a copy of the observed broker until nothing is left, and returns the steps. Bindings from exchanges that are
/// not owned are left out: they block the destruction, unless it is forced.
fn order(nothing: &Desired, view: &View<'_>) -> (Vec<Step>, Vec<Step>) {
    let mut left = own(view);
    let (mut entries, mut rest, mut policies) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0_usize.. {
        let view = View::new(nothing, &left);
        let owned = everything(&view);
        let mut steps = prune::steps(&view, &owned);
        // Each may go at another round: when the queues that count on it are gone.
        for step in steps.iter().filter(|step| matches!(step, Step::DeletePolicy(_))) {
            if !policies.contains(step) {
                policies.push(step.clone());
            }
        }
        steps.retain(|step| !matches!(step, Step::DeletePolicy(_)));
        if steps.is_empty() {
            // A binding made by hand closes a circle, so there is no order to keep.
            steps = owned.iter().filter_map(|change| deletion(&view, &change.address)).collect();
        }
        if steps.is_empty() {
            break;
        }
        let gone: BTreeSet<Address> = steps.iter().map(Step::address).collect();
        let (first, later): (Vec<Step>, Vec<Step>) =
            steps.into_iter().partition(|step| round == 0 && matches!(step, Step::DeleteExchange(_)));
        entries.extend(first);
        rest.extend(later);
        remove(&mut left, &gone);
    }
    // The policies go last: workers count on their settings until their queues are deleted.
    rest.extend(policies);
    (entries, rest)
}

/// Returns the owned exchanges and queues, and the bindings from owned exchanges.
fn own(view: &View<'_>) -> Observed {
    let owned = view.owned();
    let mut left = view.observed.clone();
    left.exchanges.retain(|live| owned.contains(&Address::new(Kind::Exchange, &live.name)));
    left.queues.retain(|live| owned.contains(&Address::new(Kind::Queue, &live.name)));
    left.bindings.retain(|live| owned.contains(&Address::new(Kind::Exchange, &live.source)));
    left
}

fn deletion(view: &View<'_>, address: &Address) -> Option<Step> {
    match address.kind {
        Kind::Exchange => Some(Step::DeleteExchange(address.name.clone())),
        Kind::Queue if view.queue(&address.name).is_some_and(LiveQueue::is_stream) => {
            Some(Step::DeleteStream(address.name.clone()))
        }
        Kind::Queue => {
            let ttl_millis = view.queue(&address.name).and_then(LiveQueue::ttl_millis);
            Some(Step::DeleteQueue { name: address.name.clone(), ttl_millis })
        }
        Kind::Binding | Kind::Policy => None,
    }
}

fn remove(left: &mut Observed, gone: &BTreeSet<Address>) {
    left.exchanges.retain(|live| !gone.contains(&Address::new(Kind::Exchange, &live.name)));
    left.queues.retain(|live| !gone.contains(&Address::new(Kind::Queue, &live.name)));
    left.bindings
        .retain(|live| !gone.contains(&Address::new(Kind::Exchange, &live.source)) && !gone.contains(&target(live)));
}

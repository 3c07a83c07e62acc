//! Plans the removal of leftovers: unbind, drain, delete once provably empty. An object is removed before the objects
//! that it leads to.

use hatchery::internals::compile::Binding;
use serde_json::Value;

use super::{
    Action, Address, Change, Kind, Object, Step,
    view::{View, plain},
};
use crate::{
    live::{LiveExchange, LiveQueue},
    names,
};

/// Returns the next steps for the leftovers among `changes`.
pub(super) fn steps(view: &View<'_>, changes: &[Change]) -> Vec<Step> {
    let pruning = Pruning::new(view, changes);
    let mut steps: Vec<Step> = pruning.bindings(changes).chain(pruning.switched_off()).map(Step::Unbind).collect();
    steps.extend(pruning.named(Kind::Queue).filter_map(|name| pruning.queue(name)));
    steps.extend(pruning.named(Kind::Exchange).filter_map(|name| pruning.exchange(name)));
    steps.extend(pruning.named(Kind::Policy).filter(|name| pruning.applied(name).is_none()).map(delete_policy));
    steps
}

pub(super) struct Pruning<'a> {
    view: &'a View<'a>,
    leftover: Vec<&'a Address>,
}

impl<'a> Pruning<'a> {
    /// Takes the leftovers among `changes`.
    pub(super) fn new(view: &'a View<'a>, changes: &'a [Change]) -> Self {
        let leftover = changes.iter().filter(|change| change.action == Action::Leftover);
        Self { view, leftover: leftover.map(|change| &change.address).collect() }
    }

    fn named(&self, kind: Kind) -> impl Iterator<Item = &'a str> {
        self.leftover.iter().filter(move |address| address.kind == kind).map(|address| address.name.as_str())
    }

    pub(super) fn goes(&self, kind: Kind, name: &str) -> bool {
        self.leftover.iter().any(|address| address.kind == kind && address.name == name)
    }

    /// Returns the leftover bindings between objects that stay.
    fn bindings(&self, changes: &'a [Change]) -> impl Iterator<Item = Binding> {
        changes
            .iter()
            .filter(|change| change.action == Action::Leftover)
            .filter_map(|change| match &change.object {
                Some(Object::Binding(binding)) => Some(binding.clone()),
                _ => None,
            })
            .filter(|binding| !self.goes(Kind::Exchange, &binding.source))
            .filter(|binding| {
                let address = Address::of_target(&binding.target);
                !self.leftover.contains(&&address)
            })
    }

    /// Returns the bindings from exchanges that stay to leftover exchanges, and to leftover queues that are timers or
    /// unused.
    fn switched_off(&self) -> impl Iterator<Item = Binding> {
        let queues = self
            .named(Kind::Queue)
            .filter(|name| self.view.queue(name).is_some_and(may_be_unbound) && self.worked(name).is_none());
        let all = queues
            .map(|name| Address::new(Kind::Queue, name))
            .chain(self.named(Kind::Exchange).map(|name| Address::new(Kind::Exchange, name)));
        let leading = all.flat_map(|address| self.view.to(&address).to_vec()).filter(|live| self.stays(&live.source));
        // A binding with arguments cannot be removed by its key alone, so it stays, and its target with it.
        leading.filter_map(plain)
    }

    /// Returns a queue that shows that events of the type of this queue are still on their way. A failed event goes to its retry queue, comes
    /// back, and may end in its dead-letter queue. So all queues of a leftover type stay bound until its processing
    /// queue, its quarantine queue and its retry queues are empty and its workers are gone.
    pub(super) fn worked(&self, name: &str) -> Option<&'a LiveQueue> {
        let mut words = name.splitn(3, '.');
        let (owner, kind, rest) = (words.next()?, words.next()?, words.next()?);
        let event_type = match kind {
            "processor" | "aside" | "dead-letter" => rest,
            "retry" => rest.split('.').next().unwrap_or_default(),
            _ => return None,
        };
        let processing = format!("{owner}.processor.{event_type}");
        let (quarantine, retries) = (format!("{owner}.aside.{event_type}"), format!("{owner}.retry.{event_type}."));
        if !self.goes(Kind::Queue, &processing) {
            return None;
        }
        let mut queues = self
            .named(Kind::Queue)
            .filter(|name| *name == processing || *name == quarantine || name.starts_with(&retries));
        queues.find_map(|name| self.view.queue(name).filter(|live| !is_unused(live)))
    }

    /// Whether the file asks for this exchange. Only the bindings from such exchanges are removed one by one: those
    /// from a leftover exchange go with it, and those from any other exchange belong to a stranger.
    fn stays(&self, exchange: &str) -> bool {
        self.view.wants(&Address::new(Kind::Exchange, exchange))
    }

    fn queue(&self, name: &str) -> Option<Step> {
        let live = self.view.queue(name)?;
        let is_free = self.view.to_queue(name).is_empty() && !live.is_down();
        if live.is_stream() {
            // A program that still reads the stream takes nothing from it.
            return is_free.then(|| Step::DeleteStream(name.to_owned()));
        }
        (is_free && !self.is_moved(name))
            .then(|| Step::DeleteQueue { name: name.to_owned(), ttl_millis: live.ttl_millis() })
    }

    /// Whether the queue has a new name, so that its migration empties it, and not the time.
    pub(super) fn is_moved(&self, queue: &str) -> bool {
        self.view.exchange(&names::moving(&self.view.desired.owner, queue)).is_some()
    }

    /// Returns a queue that still exists and counts on the settings of this policy.
    pub(super) fn applied(&self, policy: &str) -> Option<&'a str> {
        if self.view.desired.owners().any(|owner| names::life_cycle(owner) == policy) {
            return self.named(Kind::Queue).find(|queue| *queue == policy);
        }
        let mut owners = self.view.desired.owners().filter(|owner| names::tunables(owner) == policy);
        let has_limit = |owner, queue| names::is_consumed(owner, queue) && names::consumed_source(queue).is_none();
        owners.find_map(|owner| self.named(Kind::Queue).find(|queue| has_limit(owner, queue)))
    }

    /// Returns the deletion of an exchange once nothing leads to it.
    fn exchange(&self, name: &str) -> Option<Step> {
        self.reached(name).is_none().then(|| Step::DeleteExchange(name.to_owned()))
    }

    /// Returns an object that leads to this exchange: by a binding, as a dead-lettering queue, or by its
    /// `alternate-exchange`.
    pub(super) fn reached(&self, name: &str) -> Option<Address> {
        let is_alternate_of = |live: &&LiveExchange| {
            live.name != name && live.arguments.get("alternate-exchange").and_then(Value::as_str) == Some(name)
        };
        let observed = self.view.observed;
        let bound = self.view.to(&Address::new(Kind::Exchange, name)).first().map(|live| live.source.as_str());
        let dead_letters = || observed.queues.iter().find(|live| live.text("x-dead-letter-exchange") == Some(name));
        let alternate = || observed.exchanges.iter().find(is_alternate_of).map(|live| live.name.as_str());
        let exchange = |name: &str| Address::new(Kind::Exchange, name);
        bound
            .map(exchange)
            .or_else(|| dead_letters().map(|live| Address::new(Kind::Queue, &live.name)))
            .or_else(|| alternate().map(exchange))
    }
}

fn delete_policy(name: &str) -> Step {
    Step::DeletePolicy(name.to_owned())
}

/// Whether a leftover queue may be unbound. A timer empties itself. Any other queue, from which workers or people take
/// events, stays bound as long as it has a message or a consumer.
fn may_be_unbound(live: &LiveQueue) -> bool {
    live.ttl_millis().is_some() || is_unused(live)
}

/// Whether a queue has no event and no consumer for certain. An unknown count is not 0.
fn is_unused(live: &LiveQueue) -> bool {
    live.events() == Some(0) && live.consumers == Some(0)
}

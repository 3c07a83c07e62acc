//! Plans the migration of exchanges and queues that RabbitMQ cannot change in place, and of queues that have a new name.
//!
//! An exchange is replaced at once. A queue is replaced by way of a second queue, its stand-in:
//!
//! ```text
//!  1 expand    create the stand-in, and an exchange that leads to it alone
//!  2 switch    each binding of the queue is moved to the stand-in
//!  3 move      each message of the queue goes to the stand-in: publish, confirm, acknowledge
//!  4 contract  the queue is deleted once it is provably empty, and created as the file says
//!  5 back      the bindings, then the messages go back; then the stand-in is deleted
//! ```
//!
//! While a binding is switched, a message may go to both queues: it is one event with one id, delivered twice.

use hatchery::internals::compile::{
    self, Argument, BALANCED, Binding, Exchange, LOCATOR, NO_DELIVERY_LIMIT, OWNER, Queue, Rename, Target,
};

use super::{
    Action, Address, Change, Dated, Kind, MessageCount, Move, Need, Object, Step, Then, compare,
    shadow::Shadows,
    view::{QueueState, View, any, plain},
};
use crate::{live::LiveQueue, names};

/// The stand-in is a quorum queue whatever the file says, because it may hold events for a long time.
const STAND_IN_TYPE: &str = "quorum";

/// The migration of one queue.
pub(super) struct Migration {
    pub(super) change: Change,
    /// The next steps; none while another object has to be changed first.
    pub(super) next: Vec<Step>,
}

/// Returns every migration that is needed or under way.
pub(super) fn all(view: &View<'_>, shadows: &Shadows<'_>) -> Vec<Migration> {
    let exchanges = view.desired.exchanges.iter().filter_map(|exchange| exchange_replacement(view, exchange));
    let replaced = view.desired.queues.iter().filter_map(|queue| replacement(view, shadows, queue));
    let renamed = view.desired.renames.iter().filter_map(|rename| renaming(view, rename));
    let stranded = view.observed.queues.iter().filter_map(|live| stranded(view, live));
    let queues = replaced.chain(renamed).chain(stranded).map(|migration| unless_stuck(view, migration));
    exchanges.chain(queues).collect()
}

/// Blocks a migration that cannot end. A binding with arguments cannot be removed by its key alone, and while it exists
/// the queue is never provably empty. If the queue's node is down, its messages cannot be moved, and its bindings are
/// not known.
fn unless_stuck(view: &View<'_>, Migration { change, next }: Migration) -> Migration {
    let queue = &change.address.name;
    let stand_in = names::moving(&view.desired.owner, queue);
    if [queue, &stand_in].into_iter().any(|name| view.queue(name).is_some_and(LiveQueue::is_down)) {
        return blocked(change, "its node is down");
    }
    let mut leading = view.to_queue(queue).iter().chain(view.to_queue(&stand_in));
    let Some(stuck) = leading.find(|live| plain(live).is_none()) else { return Migration { change, next } };
    let why = format!("the {} has arguments; remove it first", Address::of_binding(&any(stuck)));
    blocked(change, &why)
}

/// Replaces an exchange that somebody has declared anew. Others publish to it under its name, so there is no stand-in. A
/// replacement that is killed in between has removed bindings that the file does not ask for; what they routed goes to `unrouted`.
fn exchange_replacement(view: &View<'_>, exchange: &Exchange) -> Option<Migration> {
    let live = view.exchange(&exchange.name).filter(|live| view.owns(&live.name, &live.arguments))?;
    let differences = compare::exchange(exchange, live);
    if differences.is_empty() {
        return None;
    }
    let change = due(Address::new(Kind::Exchange, &exchange.name), "cannot be changed in place".to_owned(), None);
    let target = Target::Exchange(exchange.name.clone());
    let is_of_it = |binding: &Binding| binding.source == exchange.name || binding.target == target;
    let is_there = |binding: &Binding| {
        let target = match &binding.target {
            Target::Exchange(name) => view.exchange(name).is_some(),
            Target::Queue(name) => view.queue(name).is_some(),
        };
        target && view.exchange(&binding.source).is_some()
    };
    // The bindings of the file come first: they matter most, and a stranger's queue may refuse its binding.
    let wanted = view.desired.bindings.iter().filter(|binding| is_of_it(binding) && is_there(binding));
    let mut bindings: Vec<Binding> = wanted.cloned().collect();
    for live in view.observed.bindings.iter().map(any).filter(is_of_it) {
        if !bindings.contains(&live) {
            bindings.push(live);
        }
    }
    let next = vec![Step::Replace { exchange: exchange.clone(), bindings }];
    Some(Migration { change: Change { differences, ..change }, next })
}

fn replacement(view: &View<'_>, shadows: &Shadows<'_>, queue: &Queue) -> Option<Migration> {
    let stand_in = view.stand_in(&queue.name);
    let state = view.state(queue);
    let is_back = !matches!(state, QueueState::Wrong(_));
    let (differences, reason, next) = match (state, &stand_in) {
        (QueueState::Wrong(differences), _) => {
            (differences, "cannot be changed in place", Replacement::new(view, queue).there())
        }
        (QueueState::Missing, Some(_)) => {
            (Vec::new(), "its migration was interrupted", vec![Step::Create(Object::Queue(queue.clone()))])
        }
        (QueueState::Right, Some(_)) => {
            (Vec::new(), "its migration was interrupted", Replacement::new(view, queue).back())
        }
        (QueueState::Foreign(..), _) | (QueueState::Missing | QueueState::Right, None) => return None,
    };
    let live = stand_in.as_deref().and_then(|name| view.queue(name)).or_else(|| view.queue(&queue.name));
    let address = Address::new(Kind::Queue, &queue.name);
    let change = Change { differences, ..due(address, reason.to_owned(), live) };
    if queue.is_stream() {
        let is_of_switches = queue.name == names::control(&view.desired.owner);
        let forgotten = if is_of_switches { "its pauses" } else { "what it was told" };
        let why = format!("a stream is not migrated; delete it and run `topology apply`, which forgets {forgotten}");
        return Some(blocked(change, &why));
    }
    // On the way back the stand-in is emptied, and the sooner the better, even if a policy harms it.
    let harm = if is_back { None } else { unreachable(queue).or_else(|| harm(view, shadows, queue)) };
    Some(match harm {
        Some(harm) => blocked(change, &harm),
        None => Migration { change, next },
    })
}

/// Returns why a declared queue of a source cannot be replaced: its publishers name the queue, and RabbitMQ would drop
/// their messages, confirmed, while it does not exist.
fn unreachable(queue: &Queue) -> Option<String> {
    let source = names::consumed_source(&queue.name)?;
    Some(format!(
        "publishers send to it by name, and would lose messages while it is replaced; stop them and delete it once it is \
         empty, or give the source {source} another name"
    ))
}

/// Returns the harm that a stranger's policy would do to the stand-in of this queue.
fn harm(view: &View<'_>, shadows: &Shadows<'_>, queue: &Queue) -> Option<String> {
    let stand_in = names::moving(&view.desired.owner, &queue.name);
    let harm = shadows.on(&stand_in, STAND_IN_TYPE, None).into_iter().find_map(|shadow| shadow.harm)?;
    Some(format!("its stand-in {stand_in} would be {harm}"))
}

fn blocked(change: Change, why: &str) -> Migration {
    let reason = Some(format!("blocked: {why}"));
    Migration { change: Change { action: Action::Blocked, reason, needs: None, ..change }, next: Vec::new() }
}

fn due(address: Address, reason: String, live: Option<&LiveQueue>) -> Change {
    let held = live.and_then(MessageCount::of);
    Change { needs: Some(Need::Migrate), held, ..Change::note(Action::Migrate, address, reason) }
}

/// A queue, its stand-in, and the exchange with the stand-in's name, which leads to one of the two.
struct Replacement<'a> {
    view: &'a View<'a>,
    queue: &'a Queue,
    stand_in: String,
}

impl<'a> Replacement<'a> {
    fn new(view: &'a View<'a>, queue: &'a Queue) -> Self {
        Self { view, queue, stand_in: names::moving(&view.desired.owner, &queue.name) }
    }

    /// Returns the next steps from the queue as it is to its stand-in, until the queue is deleted.
    fn there(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.view.queue(&self.stand_in).is_none() {
            steps.push(Step::Create(Object::Queue(self.holding())));
        }
        steps.extend(self.feed(&self.stand_in));
        steps.extend(self.switch(&self.queue.name, &self.stand_in));
        if steps.is_empty() {
            steps.push(self.empty(&self.queue.name, None));
        }
        steps
    }

    /// Returns the next steps from the stand-in to the queue as the file says.
    fn back(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let wanted = self.view.desired.bindings.iter().filter(|binding| binding.target == self.target());
        steps.extend(wanted.filter(|binding| !self.view.is_bound(binding)).cloned().map(bind));
        steps.extend(self.switch(&self.stand_in, &self.queue.name));
        let is_there = self.view.queue(&self.stand_in).is_some();
        if is_there {
            steps.extend(self.feed(&self.queue.name));
        }
        if !steps.is_empty() {
            return steps;
        }
        if is_there {
            return vec![self.empty(&self.stand_in, self.dated())];
        }
        vec![Step::DeleteExchange(self.stand_in.clone())]
    }

    /// Returns the stand-in. It may hold events for any time, so it has no limit and no TTL, and it is a quorum queue
    /// in any case.
    fn holding(&self) -> Queue {
        let arguments = [
            (OWNER, Argument::Text(self.view.desired.owner.clone())),
            ("x-queue-type", Argument::Text(STAND_IN_TYPE.to_owned())),
            ("x-delivery-limit", Argument::Number(NO_DELIVERY_LIMIT)),
            (LOCATOR, Argument::Text(BALANCED.to_owned())),
        ];
        let arguments = arguments.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Queue { name: self.stand_in.clone(), arguments }
    }

    /// Makes the exchange that messages are moved through lead to this queue alone.
    fn feed(&self, queue: &str) -> Vec<Step> {
        lead(self.view, &self.stand_in, queue)
    }

    /// Moves each binding of one queue to the other. The new binding comes first, so that every message finds a queue.
    fn switch(&self, from: &str, to: &str) -> Vec<Step> {
        switch(self.view, from, to, &self.stand_in)
    }

    /// Messages that come from the scheduler into a timer wait for a date. Those in a retry queue do not.
    fn dated(&self) -> Option<Dated> {
        let exchange = names::scheduler(&self.view.desired.owner);
        let is_timer = self.queue.arguments.contains_key("x-message-ttl");
        let mut wanted = self.view.desired.bindings.iter().filter(|binding| binding.target == self.target());
        let is_scheduled = is_timer && wanted.any(|binding| binding.source == exchange);
        is_scheduled.then_some(Dated { exchange, ladder: self.view.desired.ladder })
    }

    fn empty(&self, from: &str, dated: Option<Dated>) -> Step {
        Step::Move(Move { from: from.to_owned(), through: self.stand_in.clone(), dated, then: Then::DeleteQueue })
    }

    fn target(&self) -> Target {
        Target::Queue(self.queue.name.clone())
    }
}

const fn bind(binding: Binding) -> Step {
    Step::Create(Object::Binding(binding))
}

/// Makes an owned exchange lead to this queue alone, whatever the routing key.
fn lead(view: &View<'_>, exchange: &str, queue: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    if view.exchange(exchange).is_none() {
        steps.push(Step::Create(Object::Exchange(compile::exchange(&view.desired.owner, exchange))));
    }
    let binding = Binding { source: exchange.to_owned(), target: Target::Queue(queue.to_owned()), key: "#".to_owned() };
    if !view.is_bound(&binding) {
        steps.push(bind(binding.clone()));
    }
    let others = view.observed.bindings.iter().filter(|live| live.source == exchange).map(any);
    steps.extend(others.filter(|other| *other != binding).map(Step::Unbind));
    steps
}

/// Moves each binding of one queue to another, except those from the exchange `but`.
fn switch(view: &View<'_>, from: &str, to: &str, but: &str) -> Vec<Step> {
    let live = view.to_queue(from).iter().filter(|live| live.source != but);
    live.flat_map(|live| {
        let old = any(live);
        let new = Binding { target: Target::Queue(to.to_owned()), ..old.clone() };
        let bound = (!view.is_bound(&new)).then(|| bind(new));
        bound.into_iter().chain([Step::Unbind(old)])
    })
    .collect()
}

/// Migrates a queue with a former name. Its bindings are moved to the queue with the present name. Its messages are
/// moved too, and so are those that an old worker returns to it later. The queue itself stays for the workers that
/// still consume it.
fn renaming(view: &View<'_>, rename: &Rename) -> Option<Migration> {
    let live = view.queue(&rename.from).filter(|live| view.owns(&live.name, &live.arguments))?;
    let exchange = names::moving(&view.desired.owner, &rename.from);
    let is_bound = !view.to_queue(&rename.from).is_empty();
    let holds = live.messages_ready.is_some_and(|ready| ready > 0);
    let is_begun = view.exchange(&exchange).is_some();
    if !is_bound && !holds && !is_begun {
        return None;
    }
    let reason = format!("is called {} now", rename.to);
    let change = due(Address::new(Kind::Queue, &rename.from), reason, Some(live));
    if !is_ready(view, rename) {
        return Some(Migration { change, next: Vec::new() });
    }
    let mut next = lead(view, &exchange, &rename.to);
    next.extend(switch(view, &rename.from, &rename.to, &exchange));
    if next.is_empty() {
        let from = rename.from.clone();
        next.push(Step::Move(Move { from, through: exchange, dated: None, then: Then::DeleteExchange }));
    }
    Some(Migration { change, next })
}

/// Whether the queue with the present name is there, as the file says.
fn is_ready(view: &View<'_>, rename: &Rename) -> bool {
    view.wanted_queue(&rename.to).is_some_and(|queue| matches!(view.state(queue), QueueState::Right))
}

/// Empties a stand-in for a queue that the file no longer asks for, or that belongs to a former name of the topology. What leads to the
/// stand-in of a queue with a former name leads to the queue with the present name from then on. Its events are due: they go to the
/// processor, and a type that the processor does not know ends in `unrouted`. Dead letters stay dead letters.
fn stranded(view: &View<'_>, live: &LiveQueue) -> Option<Migration> {
    let queue = view.stands_in_for(&live.name)?;
    let is_current = names::moved(&view.desired.owner, &live.name).is_some();
    if (is_current && view.wanted_queue(queue).is_some()) || !view.owns(&live.name, &live.arguments) {
        return None;
    }
    let change = due(Address::new(Kind::Queue, &live.name), "its migration was interrupted".to_owned(), Some(live));
    let renamed = view.desired.renames.iter().find(|rename| rename.from == *queue);
    if renamed.is_some_and(|rename| !is_ready(view, rename)) {
        return Some(Migration { change, next: Vec::new() });
    }
    let mut next = renamed.map_or_else(Vec::new, |rename| switch(view, &live.name, &rename.to, &live.name));
    // The exchange of the stand-in's name has moved messages to it, and no more will come that way.
    let left = view.to_queue(&live.name).iter().filter(|from| renamed.is_none() || from.source == live.name);
    next.extend(left.map(|live| Step::Unbind(any(live))));
    if next.is_empty() {
        let resting = |kind: &&str| matches!(*kind, "dead-letter" | "unrouted");
        let exchange = queue.split('.').nth(1).filter(resting).unwrap_or("processor");
        let through = format!("{}.{exchange}", view.desired.owner);
        next.push(Step::Move(Move { from: live.name.clone(), through, dated: None, then: Then::DeleteQueue }));
    }
    Some(Migration { change, next })
}

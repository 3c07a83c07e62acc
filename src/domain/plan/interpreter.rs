//! A broker for tests: it does what plans and steps say, with messages in its queues, and refuses what RabbitMQ refuses.
//!
//! [`Run`] goes round as `topology apply --migrate --prune` does: plan, write, take what comes next, plan again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{
    super::{
        compile::{Argument, Desired, OWNER, Target, tests::simulator::route::Routes},
        observed::{Arguments, LiveBinding, LiveExchange, LivePolicy, LiveQueue, Observed},
        wire::{Incoming, Properties},
    },
    APPLY_TO, Action, Address, Change, Kind, Move, Object, PRIORITY, Plan, Step, Then, plan,
};

/// More rounds than any change needs.
const ROUNDS: usize = 60;

/// A message, told apart by a number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Message {
    pub(super) id: u32,
    pub(super) key: String,
    /// Headers and all that.
    pub(super) properties: Properties,
    /// Timers that it has left by itself since somebody published it.
    left: BTreeSet<String>,
}

/// Exchanges, queues and what is in them.
#[derive(Clone, Debug)]
pub(super) struct Broker {
    /// What there is, in the words of a compiled file.
    pub(super) there: Desired,
    /// By queue, oldest first.
    pub(super) contents: BTreeMap<String, Vec<Message>>,
    /// Queues that a worker consumes.
    pub(super) consumed: BTreeSet<String>,
    /// What was published, and what a worker has acknowledged.
    pub(super) published: BTreeSet<u32>,
    pub(super) handled: BTreeSet<u32>,
}

/// What a test must not see.
pub(super) type Wrong = String;

impl Broker {
    /// After the first `apply`.
    pub(super) fn new(there: Desired) -> Self {
        Self {
            there,
            contents: BTreeMap::new(),
            consumed: BTreeSet::new(),
            published: BTreeSet::new(),
            handled: BTreeSet::new(),
        }
    }

    /// What the management API says.
    pub(super) fn observe(&self) -> Observed {
        let live = |arguments: &BTreeMap<String, Argument>| -> Arguments {
            arguments.iter().map(|(name, value)| (name.clone(), value.into())).collect()
        };
        let binding = |source: &str, target: &Target, key: &str| LiveBinding {
            source: source.to_owned(),
            destination: target.name().to_owned(),
            destination_type: if matches!(target, Target::Queue(_)) { "queue" } else { "exchange" }.to_owned(),
            routing_key: key.to_owned(),
            arguments: Arguments::new(),
        };
        let by_name = |name: &String| binding("", &Target::Queue(name.clone()), name);
        Observed {
            at: None,
            version: None,
            exchanges: self
                .there
                .exchanges
                .iter()
                .map(|exchange| LiveExchange {
                    name: exchange.name.clone(),
                    kind: Some("topic".to_owned()),
                    durable: Some(true),
                    auto_delete: Some(false),
                    internal: Some(false),
                    arguments: live(&exchange.arguments),
                })
                .collect(),
            queues: self
                .there
                .queues
                .iter()
                .map(|queue| {
                    let ready = Some(self.contents.get(&queue.name).map_or(0, Vec::len) as u64);
                    LiveQueue {
                        name: queue.name.clone(),
                        kind: queue.arguments.get("x-queue-type").and_then(Argument::as_text).map(str::to_owned),
                        durable: Some(true),
                        auto_delete: Some(false),
                        arguments: live(&queue.arguments),
                        messages_ready: ready,
                        messages_unacknowledged: Some(0),
                        messages: ready,
                        consumers: Some(u64::from(self.consumed.contains(&queue.name))),
                        ..LiveQueue::default()
                    }
                })
                .collect(),
            bindings: (self.there.queues.iter().map(|queue| by_name(&queue.name)))
                .chain(self.there.bindings.iter().map(|it| binding(&it.source, &it.target, &it.key)))
                .collect(),
            policies: self
                .there
                .policies
                .iter()
                .map(|policy| LivePolicy {
                    name: policy.name.clone(),
                    pattern: policy.pattern.clone(),
                    apply_to: APPLY_TO.to_owned(),
                    priority: PRIORITY,
                    definition: live(&policy.definition),
                })
                .collect(),
            operator_policies: Vec::new(),
        }
    }

    pub(super) fn has_exchange(&self, name: &str) -> bool {
        self.there.exchanges.iter().any(|exchange| exchange.name == name)
    }

    pub(super) fn has_queue(&self, name: &str) -> bool {
        self.there.queues.iter().any(|queue| queue.name == name)
    }

    /// A queue's TTL and where it dead-letters to.
    fn timer(&self, name: &str) -> Option<&str> {
        let queue = self.there.queues.iter().find(|queue| queue.name == name)?;
        queue.arguments.get("x-message-ttl")?;
        queue.arguments.get("x-dead-letter-exchange")?.as_text()
    }

    /// A publisher's event. Whoever publishes to an exchange that is not there is told.
    pub(super) fn publish(&mut self, exchange: &str, key: &str, properties: Properties) -> Result<(), Wrong> {
        if !self.has_exchange(exchange) {
            return Ok(());
        }
        let id = u32::try_from(self.published.len()).unwrap_or(u32::MAX);
        self.published.insert(id);
        self.route(exchange, &Message { id, key: key.to_owned(), properties, left: BTreeSet::new() }).map(drop)
    }

    /// Puts a message into each queue that it reaches, and says which.
    fn route(&mut self, exchange: &str, message: &Message) -> Result<BTreeSet<String>, Wrong> {
        let all: BTreeSet<String> =
            Routes::new(&self.there).of(exchange, &message.key).into_iter().map(str::to_owned).collect();
        let targets: BTreeSet<String> = all.difference(&message.left).cloned().collect();
        if targets.is_empty() {
            return Err(format!("{} from {exchange} is dropped: it reaches {all:?}", message.key));
        }
        for queue in &targets {
            self.contents.entry(queue.clone()).or_default().push(message.clone());
        }
        Ok(targets)
    }

    /// The time of everything in this timer is up.
    pub(super) fn expire(&mut self, queue: &str) -> Result<(), Wrong> {
        let Some(exchange) = self.timer(queue).map(str::to_owned) else { return Ok(()) };
        for mut message in self.contents.remove(queue).unwrap_or_default() {
            message.left.insert(queue.to_owned());
            self.route(&exchange, &message).map_err(|wrong| format!("expired in {queue}: {wrong}"))?;
        }
        Ok(())
    }

    /// A worker or a person takes all that is in a queue.
    pub(super) fn handle(&mut self, queue: &str) {
        self.handled.extend(self.contents.remove(queue).unwrap_or_default().iter().map(|message| message.id));
    }

    /// The queues in which an event would come to rest.
    pub(super) fn ends(&self, routes: &Routes<'_>, exchange: &str, key: &str) -> Result<BTreeSet<String>, Wrong> {
        let (mut ends, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut left = vec![exchange.to_owned()];
        while let Some(exchange) = left.pop() {
            let queues = routes.of(&exchange, key);
            if queues.is_empty() {
                return Err(format!("{key} is dropped by {exchange}"));
            }
            for queue in queues {
                match self.timer(queue) {
                    None => drop(ends.insert(queue.to_owned())),
                    Some(_) if !seen.insert(queue) => return Err(format!("{key} comes back to {queue}")),
                    Some(next) => left.push(next.to_owned()),
                }
            }
        }
        Ok(ends)
    }

    /// Declares one object, as RabbitMQ would.
    pub(super) fn create(&mut self, object: &Object) -> Result<(), Wrong> {
        let same = |one: &BTreeMap<String, Argument>, other: &BTreeMap<String, Argument>| {
            let compared = |it: &BTreeMap<String, Argument>| {
                it.iter().filter(|(name, _)| *name != OWNER).map(|(n, v)| (n.clone(), v.clone())).collect::<Vec<_>>()
            };
            compared(one) == compared(other)
        };
        let refused = || format!("406: {} is there with other arguments", object.address());
        match object {
            Object::Exchange(new) => match self.there.exchanges.iter().find(|it| it.name == new.name) {
                None => self.there.exchanges.push(new.clone()),
                Some(live) if same(&live.arguments, &new.arguments) => {}
                Some(_) => return Err(refused()),
            },
            Object::Queue(new) => match self.there.queues.iter().find(|it| it.name == new.name) {
                None => self.there.queues.push(new.clone()),
                Some(live) if same(&live.arguments, &new.arguments) => {}
                Some(_) => return Err(refused()),
            },
            Object::Binding(new) => {
                let target = match &new.target {
                    Target::Exchange(name) => self.has_exchange(name),
                    Target::Queue(name) => self.has_queue(name),
                };
                if !target || !self.has_exchange(&new.source) {
                    return Err(format!("404: an end of {} is missing", object.address()));
                }
                if !self.there.bindings.contains(new) {
                    self.there.bindings.push(new.clone());
                }
            }
            Object::Policy(new) => {
                self.there.policies.retain(|it| it.name != new.name);
                self.there.policies.push(new.clone());
            }
        }
        Ok(())
    }

    /// RabbitMQ would delete an exchange that is in use. What comes to it then would be lost.
    fn delete_exchange(&mut self, name: &str) -> Result<(), Wrong> {
        let leads = |arguments: &BTreeMap<String, Argument>, by: &str| {
            arguments.get(by).and_then(Argument::as_text) == Some(name)
        };
        let there = &self.there;
        if there.queues.iter().any(|queue| leads(&queue.arguments, "x-dead-letter-exchange"))
            || there.exchanges.iter().any(|it| it.name != name && leads(&it.arguments, "alternate-exchange"))
            || there.bindings.iter().any(|binding| binding.target == Target::Exchange(name.to_owned()))
        {
            return Err(format!("exchange {name} is deleted, and something still leads to it"));
        }
        self.there.exchanges.retain(|exchange| exchange.name != name);
        self.there.bindings.retain(|binding| binding.source != name);
        Ok(())
    }

    /// The adapter deletes without a condition, for a quorum queue knows none; it has looked before.
    fn delete_queue(&mut self, name: &str) -> Result<(), Wrong> {
        let target = Target::Queue(name.to_owned());
        if let Some(binding) = self.there.bindings.iter().find(|binding| binding.target == target) {
            return Err(format!("queue {name} is deleted, and {} still leads to it", binding.source));
        }
        if self.contents.get(name).is_some_and(|held| !held.is_empty()) {
            return Err(format!("queue {name} is deleted with what is in it"));
        }
        self.there.queues.retain(|queue| queue.name != name);
        self.consumed.remove(name);
        Ok(())
    }

    /// Publish, confirm, acknowledge.
    fn move_all(&mut self, step: &Move) -> Result<(), Wrong> {
        for message in self.contents.remove(&step.from).unwrap_or_default() {
            let Message { id, key, properties, .. } = message;
            let incoming = Incoming { routing_key: key, properties, body: Vec::new().into() };
            let sent = step.forward(incoming, Timestamp::UNIX_EPOCH);
            let message = Message { id, key: sent.routing_key, properties: sent.properties, left: BTreeSet::new() };
            let reached =
                self.route(&sent.exchange, &message).map_err(|wrong| format!("moved from {}: {wrong}", step.from))?;
            if reached.contains(&step.from) {
                return Err(format!("what is in {} is moved in a circle", step.from));
            }
        }
        Ok(())
    }
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Writing,
    Pruning,
}

/// Why a run has not come to its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// It was killed.
    Cut,
    Wrong(Wrong),
}

impl From<Wrong> for Stop {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong)
    }
}

/// What happens between two steps: others publish, and a test looks.
pub(super) type Between<'a> = dyn FnMut(&mut Broker, Phase) -> Result<(), Wrong> + 'a;

/// One `topology apply --migrate --prune`.
pub(super) struct Run<'a> {
    pub(super) broker: &'a mut Broker,
    pub(super) desired: &'a Desired,
    /// It is killed after so many steps.
    pub(super) steps: usize,
    /// In which order calls of one kind are answered: they are under way side by side.
    pub(super) order: &'a mut dyn FnMut(usize) -> usize,
    pub(super) between: &'a mut Between<'a>,
    pub(super) phase: Phase,
    /// What was done, for whoever reads a failure.
    pub(super) log: Vec<String>,
}

impl Run<'_> {
    /// Everything, and what was left over and could not go.
    pub(super) fn apply(&mut self) -> Result<Vec<Address>, Stop> {
        let first = self.plan();
        if first.is_blocked(true) {
            return Err(Stop::Wrong(format!("blocked: {:?}", blocking(&first))));
        }
        self.write(&first)?;
        for round in 0_usize.. {
            let plan = self.plan();
            if plan.to_write().next().is_some() {
                self.write(&plan)?;
            } else if plan.migration.is_empty() {
                break;
            } else {
                self.next(&plan.migration)?;
            }
            if round > ROUNDS {
                return Err(Stop::Wrong(format!("it never ends: {:?}", plan.migration)));
            }
        }
        let plan = self.plan();
        if !plan.in_sync() {
            return Err(Stop::Wrong(format!("written, and not as the file says: {:?}", blocking(&plan))));
        }
        self.phase = Phase::Pruning;
        for _ in 0..ROUNDS {
            let plan = self.plan();
            if !self.next(&plan.pruning)? {
                let left = plan.changes.into_iter().filter(|change| change.action == Action::Leftover);
                return Ok(left.map(|change| change.address).collect());
            }
        }
        Err(Stop::Wrong(format!("pruning never ends: {:?}", self.plan().pruning)))
    }

    fn plan(&self) -> Plan {
        plan(self.desired, &self.broker.observe())
    }

    /// One thing is done, and then the world goes on.
    fn done(&mut self, what: String) -> Result<(), Stop> {
        self.log.push(what);
        (self.between)(self.broker, self.phase)?;
        self.steps = self.steps.checked_sub(1).ok_or(Stop::Cut)?;
        Ok(())
    }

    fn write(&mut self, plan: &Plan) -> Result<(), Stop> {
        let changes: Vec<&Change> = plan.to_write().collect();
        for kind in changes.chunk_by(|one, next| one.address.kind == next.address.kind) {
            let mut kind = kind.to_vec();
            while !kind.is_empty() {
                let change = kind.swap_remove((self.order)(kind.len()));
                let Some(object) = &change.object else { continue };
                self.broker.create(object)?;
                self.done(format!("write {}", change.address))?;
            }
        }
        Ok(())
    }

    /// The quick steps, or where there are none the long ones. Whether any was taken.
    fn next(&mut self, steps: &[Step]) -> Result<bool, Stop> {
        let quick: Vec<&Step> = steps.iter().filter(|step| !step.is_long()).collect();
        if quick.is_empty() {
            return self.empty(steps);
        }
        for step in quick {
            match step {
                Step::Create(object) => self.broker.create(object)?,
                Step::Unbind(gone) => self.broker.there.bindings.retain(|binding| binding != gone),
                Step::DeleteExchange(name) => self.broker.delete_exchange(name)?,
                Step::DeletePolicy(name) => self.broker.there.policies.retain(|policy| policy.name != *name),
                Step::Move(_) | Step::DeleteQueue { .. } => {}
            }
            self.done(step.to_string())?;
        }
        Ok(true)
    }

    /// Moves, waits for timers, and deletes what is empty then.
    fn empty(&mut self, steps: &[Step]) -> Result<bool, Stop> {
        let mut any = false;
        for step in steps {
            match step {
                Step::Move(moving) => {
                    self.broker.move_all(moving)?;
                    self.done(step.to_string())?;
                    any = true;
                }
                Step::DeleteQueue { name, ttl_millis: Some(_) } => {
                    self.broker.expire(name)?;
                    self.done(format!("wait for {name}"))?;
                }
                _ => {}
            }
        }
        for step in steps {
            let name = step.address().name;
            let is_empty = self.broker.contents.get(&name).is_none_or(Vec::is_empty);
            match step {
                _ if !is_empty => continue,
                Step::Move(Move { through, then: Then::DeleteExchange, .. }) => self.broker.delete_exchange(through)?,
                Step::DeleteQueue { .. } if self.broker.consumed.contains(&name) => continue,
                // One that is replaced has another at once, and who consumed it consumes that.
                Step::Move(_)
                    if self.broker.consumed.contains(&name)
                        && !self.desired.queues.iter().any(|queue| queue.name == name) =>
                {
                    return Err(Stop::Wrong(format!("queue {name} is taken from its workers")));
                }
                _ => self.broker.delete_queue(&name)?,
            }
            any = true;
            self.done(format!("delete after {step}"))?;
        }
        Ok(any)
    }
}

/// What a plan that should be carried out says.
fn blocking(plan: &Plan) -> Vec<String> {
    let said = plan.changes.iter().filter(|change| !matches!(change.action, Action::Leftover | Action::Ignored));
    said.map(|change| format!("{} {} {:?}", change.action.sign(), change.address, change.reason)).collect()
}

/// Whether it is a queue of that kind: `t.hatchery.5m` is one of `hatchery`.
pub(super) fn is_kind(name: &str, kind: &str) -> bool {
    name.split('.').nth(1) == Some(kind)
}

/// The objects of a kind, for comparing.
pub(super) fn named(kind: Kind, there: &Desired) -> BTreeSet<String> {
    match kind {
        Kind::Exchange => there.exchanges.iter().map(|it| it.name.clone()).collect(),
        Kind::Queue => there.queues.iter().map(|it| it.name.clone()).collect(),
        Kind::Binding => there.bindings.iter().map(|it| Address::of_binding(it).name).collect(),
        Kind::Policy => there.policies.iter().map(|it| it.name.clone()).collect(),
    }
}

//! An in-memory broker for tests. It carries out plans and steps, with messages in its queues, and refuses what
//! RabbitMQ refuses.
//!
//! [`Run`] repeats the rounds of `topology apply --migrate --prune`: plan, write, take the next steps, plan again.

mod broker;

use std::collections::BTreeSet;

use hatchery::internals::compile::Desired;

pub(super) use self::broker::{Broker, Wrong};
use super::{Action, Address, Change, Kind, Move, Object, Plan, Step, Then, plan};

/// More rounds than any change needs.
const ROUNDS: usize = 60;

/// The part of `apply` that is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Writing,
    Pruning,
}

/// Why a run has stopped before its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// The run was killed after its number of steps.
    Cut,
    Wrong(Wrong),
}

impl From<Wrong> for Stop {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong)
    }
}

/// A callback between two steps: others publish, and the test checks its invariants.
pub(super) type Between<'a> = dyn FnMut(&mut Broker, Phase) -> Result<(), Wrong> + 'a;

/// One `topology apply --migrate --prune`.
pub(super) struct Run<'a> {
    pub(super) broker: &'a mut Broker,
    pub(super) desired: &'a Desired,
    /// The number of steps after which the run is killed.
    pub(super) steps: usize,
    /// Picks the next one of so many calls of one kind. They are concurrent, so any order is possible.
    pub(super) order: &'a mut dyn FnMut(usize) -> usize,
    pub(super) between: &'a mut Between<'a>,
    pub(super) phase: Phase,
    /// The steps that were taken, shown when a test fails.
    pub(super) log: Vec<String>,
}

impl Run<'_> {
    /// Runs to the end, and returns the leftovers that could not be removed yet.
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

    /// Records a step, runs the callback, and stops if this was the last step before the kill.
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

    /// Takes the quick steps, or the long ones if there are no others. Returns whether any was taken.
    fn next(&mut self, steps: &[Step]) -> Result<bool, Stop> {
        let quick: Vec<&Step> = steps.iter().filter(|step| !step.is_long()).collect();
        if quick.is_empty() {
            return self.empty(steps);
        }
        for step in quick {
            match step {
                Step::Create(object) => self.broker.create(object)?,
                Step::Replace { exchange, bindings } => {
                    let there = &mut self.broker.there;
                    there.exchanges.retain(|live| live.name != exchange.name);
                    there.bindings.retain(|live| !bindings.contains(live));
                    self.broker.create(&Object::Exchange(exchange.clone()))?;
                    bindings.iter().try_for_each(|it| self.broker.create(&Object::Binding(it.clone())))?;
                }
                Step::Unbind(gone) => self.broker.there.bindings.retain(|binding| binding != gone),
                Step::DeleteExchange(name) => self.broker.delete_exchange(name)?,
                Step::DeleteStream(name) => self.broker.delete_queue(name)?,
                Step::DeletePolicy(name) => self.broker.there.policies.retain(|policy| policy.name != *name),
                Step::Move(_) | Step::DeleteQueue { .. } => {}
            }
            self.done(step.to_string())?;
        }
        Ok(true)
    }

    /// Moves messages, waits for timers, and deletes the queues that are empty afterwards. Returns whether it changed
    /// anything.
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
                // A queue that is replaced exists again at once, and its workers consume the new one.
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

/// Formats the changes of a plan, except leftovers and ignored objects.
fn blocking(plan: &Plan) -> Vec<String> {
    let said = plan.changes.iter().filter(|change| !matches!(change.action, Action::Leftover | Action::Ignored));
    said.map(|change| format!("{} {} {:?}", change.action.sign(), change.address, change.reason)).collect()
}

/// Whether a queue is of this kind: `t.hatchery.5m` is one of `hatchery`.
pub(super) fn is_kind(name: &str, kind: &str) -> bool {
    name.split('.').nth(1) == Some(kind)
}

/// Returns the names of all objects of a kind, for comparison.
pub(super) fn named(kind: Kind, there: &Desired) -> BTreeSet<String> {
    match kind {
        Kind::Exchange => there.exchanges.iter().map(|it| it.name.clone()).collect(),
        Kind::Queue => there.queues.iter().map(|it| it.name.clone()).collect(),
        Kind::Binding => there.bindings.iter().map(|it| Address::of_binding(it).name).collect(),
        Kind::Policy => there.policies.iter().map(|it| it.name.clone()).collect(),
    }
}

//! Explores every reachable state, breadth first, so that the path to a broken property is a shortest one.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use crate::{
    account::{Account, Property},
    alone, leases, person, properties, publisher,
    scenario::{Fault, Scenario},
    step::Step,
    trace, trouble, worker,
    world::{Publisher, Register, World},
};

/// The result of an exploration.
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    pub(crate) depth: usize,
    /// Whether every reachable state was seen.
    pub(crate) whole: bool,
    pub(crate) broken: Option<Broken>,
}

/// A property that does not hold, and the path to it, with a line for each step.
pub(crate) struct Broken {
    pub(crate) property: Property,
    pub(crate) trace: Vec<String>,
}

/// A hasher for keys that are hashes already: it returns the key.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

/// The fingerprint of each state, with that of the state from which it was first reached.
type Seen = HashMap<u64, u64, BuildHasherDefault<AsIs>>;

/// Explores a scenario until a property is broken or `at_most` states were seen.
pub(crate) fn explore(scenario: &Scenario, at_most: usize) -> Found {
    let mut first = World::new(scenario);
    first.canonical(scenario);
    let mut seen = Seen::default();
    seen.insert(first.fingerprint(), 0);
    let mut layer = vec![first];
    let mut found = Found { states: 1, steps: 0, depth: 0, whole: true, broken: None };
    let mut steps = Vec::new();
    while !layer.is_empty() && found.broken.is_none() {
        let mut next_layer = Vec::new();
        for world in std::mem::take(&mut layer) {
            if world.is_explored_elsewhere(scenario) {
                continue;
            }
            let from = world.fingerprint();
            steps.clear();
            world.steps(scenario, &mut steps);
            let mut goes_on = false;
            for step in &steps {
                let Some(mut next) = world.after(scenario, *step) else { continue };
                found.steps += 1;
                goes_on |= step.is_progress();
                next.canonical(scenario);
                let to = next.fingerprint();
                if seen.contains_key(&to) {
                    continue;
                }
                seen.insert(to, from);
                if let Some(property) = next.account.broken {
                    found.broken = Some(Broken { property, trace: trace::tell(scenario, &way(&seen, to)) });
                    break;
                }
                next_layer.push(next);
            }
            if !goes_on && let Some(property) = properties::at_the_end(&world) {
                found.broken = Some(Broken { property, trace: trace::tell(scenario, &way(&seen, from)) });
            }
            if found.broken.is_some() {
                break;
            }
            if seen.len() >= at_most {
                found.whole = false;
                break;
            }
        }
        if !found.whole {
            break;
        }
        found.depth += usize::from(!next_layer.is_empty());
        layer = next_layer;
    }
    found.states = seen.len();
    found
}

/// Returns the fingerprints on the path to a state, without that of the first state.
fn way(seen: &Seen, to: u64) -> Vec<u64> {
    let mut way = Vec::new();
    let mut at = to;
    while let Some(from) = seen.get(&at).copied().filter(|from| *from != 0) {
        way.push(at);
        at = from;
    }
    way.reverse();
    way
}

impl World {
    /// Returns the first state of a scenario, in which nothing has happened.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let publishers = scenario.programs.iter().map(|_| Publisher { begun: 0, todo: &[] }).collect();
        let actions = u8::try_from((1_u16 << scenario.actions.len()) - 1).unwrap_or(u8::MAX);
        Self {
            now: 1,
            given: 0,
            publishers,
            events: publisher::events(scenario),
            queue: Vec::new(),
            letters: Vec::new(),
            workers: vec![Vec::new(); 2],
            person: None,
            register: Register::default(),
            replica: None,
            late: Vec::new(),
            faults: scenario.faults,
            answers: scenario.answers_at_most,
            actions,
            account: Account::default(),
        }
    }

    /// Adds the steps that may happen next. Some of them turn out to change nothing.
    ///
    /// If the order of some steps makes no difference, only one order is tried, see [`crate::alone`].
    pub(crate) fn steps(&self, scenario: &Scenario, steps: &mut Vec<Step>) {
        if let Some((worker, task)) = alone::task(self, scenario) {
            return worker::steps_of(self, scenario, worker, task, steps);
        }
        publisher::steps(self, scenario, steps);
        worker::steps(self, scenario, steps);
        person::steps(self, scenario, steps);
        trouble::steps(self, scenario, steps);
    }

    /// Returns the world after a step, and `None` if the step changes nothing.
    pub(crate) fn after(&self, scenario: &Scenario, step: Step) -> Option<Self> {
        let mut world = self.clone();
        let w = &mut world;
        w.faults = w.faults.checked_sub(u8::from(step.fault().is_some()))?;
        match step {
            Step::Publisher(n, fault) => publisher::take(w, scenario, n, fault),
            Step::Claim { worker, message, fault } => worker::claim(w, scenario, worker, message, fault),
            Step::ClaimAgain { worker, task } => worker::claim_again(w, scenario, worker, task),
            Step::GiveBack { worker, task, .. } => worker::give_back(w, scenario, worker, task),
            Step::Ends { worker, task, answer } => worker::ends(w, scenario, worker, task, answer),
            Step::Told { worker, task } => worker::told(w, scenario, worker, task),
            Step::Effect { worker, task, fault } => worker::effect(w, scenario, worker, task, fault),
            Step::WorkerCrashes(worker) => worker::crashes(w, worker),
            Step::Disconnects(worker) => worker::disconnects(w, worker),
            Step::LeaseRunsOut { lease, .. } => leases::runs_out(w, lease),
            Step::Arrives(late) => trouble::arrives(w, scenario, late),
            Step::RedisEmptied => trouble::forgets(w, false),
            Step::ReplicaStops => {
                w.replica = Some(w.register.clone());
                Some(())
            }
            Step::RedisRolledBack => trouble::forgets(w, true),
            Step::Acts { action, about, fault } => person::acts(w, scenario, action, about, fault),
            Step::Person(fault) => person::goes_on(w, scenario, fault),
            Step::PersonCrashes => person::crashes(w),
            Step::Tick => trouble::tick(w, scenario),
        }?;
        Some(world)
    }
}

impl Step {
    /// Returns the fault that the step is, or with which it happens.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self {
            Self::Publisher(_, fault)
            | Self::Person(fault)
            | Self::Claim { fault, .. }
            | Self::GiveBack { fault, .. }
            | Self::Effect { fault, .. }
            | Self::Acts { fault, .. }
            | Self::LeaseRunsOut { fault, .. } => *fault,
            Self::WorkerCrashes(_) => Some(Fault::WorkerCrashes),
            Self::Disconnects(_) => Some(Fault::Disconnect),
            Self::RedisEmptied => Some(Fault::RedisEmptied),
            Self::ReplicaStops => Some(Fault::RedisRolledBack),
            Self::PersonCrashes => Some(Fault::PersonCrashes),
            Self::ClaimAgain { .. }
            | Self::Ends { .. }
            | Self::Told { .. }
            | Self::Arrives(_)
            | Self::RedisRolledBack
            | Self::Tick => None,
        }
    }

    /// Tells whether the step happens sooner or later if there is no fault and no person acts.
    fn is_progress(&self) -> bool {
        self.fault().is_none() && !matches!(self, Self::Acts { .. } | Self::RedisRolledBack)
    }
}

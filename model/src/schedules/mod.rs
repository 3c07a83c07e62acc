//! Explores `docs/schedules-protocol.md`: workers, applies and healing over one schedule, with faults between any
//! two steps.
//!
//! The state changes by the library's own functions. A tick is a minute, and the schedule has an instant every two minutes.
//! Time passes only while no event can be handled, so that "within two minutes" has a meaning.

pub(crate) mod scenario;
mod steps;
#[cfg(test)]
mod tests;
pub(crate) mod world;

use std::collections::HashMap;

use self::{
    scenario::Scenario,
    steps::Step,
    world::{Broken, World},
};

/// The result of an exploration.
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) broken: Option<(Broken, Vec<String>)>,
    /// Whether every reachable state was seen.
    pub(crate) whole: bool,
}

/// Explores a scenario until a property is broken or `at_most` states were seen.
pub(crate) fn explore(scenario: &Scenario, at_most: usize) -> Found {
    let first = World::new(scenario);
    let mut from: HashMap<u64, (u64, Option<Step>)> = HashMap::from([(first.fingerprint(), (0, None))]);
    let mut layer = vec![first];
    while !layer.is_empty() {
        let mut next_layer = Vec::new();
        for world in layer {
            let before = world.fingerprint();
            for step in world.steps(scenario) {
                let Some(next) = world.after(scenario, step) else { continue };
                let after = next.fingerprint();
                if from.contains_key(&after) {
                    continue;
                }
                from.insert(after, (before, Some(step)));
                if let Some(broken) = next.broken(scenario) {
                    let trace = trace(scenario, &from, after);
                    return Found { states: from.len(), broken: Some((broken, trace)), whole: true };
                }
                if from.len() >= at_most {
                    return Found { states: from.len(), broken: None, whole: false };
                }
                next_layer.push(next);
            }
        }
        layer = next_layer;
    }
    Found { states: from.len(), broken: None, whole: true }
}

/// Returns the path to a state, a line for each step.
fn trace(scenario: &Scenario, from: &HashMap<u64, (u64, Option<Step>)>, mut at: u64) -> Vec<String> {
    let mut path = Vec::new();
    while let Some((before, Some(step))) = from.get(&at) {
        path.push(*step);
        at = *before;
    }
    path.reverse();
    let mut world = World::new(scenario);
    let mut lines = Vec::new();
    for step in path {
        let Some(next) = world.after(scenario, step) else { break };
        world = next;
        lines.push(format!("{step:?}: {}", world.shown()));
    }
    lines
}

//! Finds types of which nearly all runs fail or time out, by what their workers have told Redis.

use std::time::Duration;

use super::{
    finding::{Failing, Finding},
    observation::Observation,
    severity::ENOUGH,
    silence::longest_run,
};
use hatchery::{
    EventType, Topology,
    internals::{register::ended_runs::EndedRuns, spec::TypeSpec},
};

/// With fewer runs a type is not judged.
const LEAST: u64 = 3;

/// How long ago runs may have ended that tell how a type fares, if it has few, and short ones.
const WINDOW: Duration = Duration::from_mins(10);

/// Finds types of which nearly all runs fail or time out.
pub(super) fn failing(topology: &Topology, seen: &Observation) -> Option<Finding> {
    let of = |(name, spec): (&EventType, &TypeSpec)| {
        let EndedRuns { ended, failed, error } = last_runs(name, spec, seen);
        let is_failing = ended >= LEAST && failed * 10 >= ended * 9;
        is_failing.then(|| Failing { event_type: name.to_string(), ended, failed, error })
    };
    let mut types: Vec<Failing> = topology.types.iter().filter_map(of).collect();
    types.sort_by_key(|failing| std::cmp::Reverse(failing.failed));
    let registered =
        |failing: &Failing| topology.types.get(failing.event_type.as_str()).is_some_and(|spec| spec.register);
    let first = types.first()?;
    let show = if registered(first) {
        format!("topology events list --type {} --state retry --state waiting", first.event_type)
    } else {
        format!("topology dead-letter list --type {}", first.event_type)
    };
    Some(Finding::Failing { types, show })
}

/// Returns the last runs of a type.
fn last_runs(name: &EventType, spec: &TypeSpec, seen: &Observation) -> EndedRuns {
    let window = WINDOW + 2 * longest_run(spec);
    let mut last = EndedRuns::default();
    for (age, runs) in &seen.reported.runs {
        if last.ended >= ENOUGH || *age > window {
            break;
        }
        if let Some(runs) = runs.get(name) {
            last.add_earlier(runs.clone());
        }
    }
    last
}

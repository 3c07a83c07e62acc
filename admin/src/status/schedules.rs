//! Findings about schedules.

use std::time::Duration;

use hatchery::{
    Topology,
    internals::schedule::{definition::Definition, state::ScheduleState},
};

use super::{finding::Finding, observation::Observation};
use crate::text::relative;

/// How long the next event of a schedule may be late. The workers find a lost one within two minutes.
const LATE: Duration = Duration::from_mins(3);

/// Finds schedules whose next event is late, although no run of them is under way.
pub(super) fn schedules_late(topology: &Topology, seen: &Observation) -> Option<Finding> {
    let late = |(definition, state): (&Definition, &ScheduleState)| {
        let due = state.overdue_since(seen.at).filter(|due| *due + LATE < seen.at)?;
        // Its next event waits in the queue of its type.
        if seen.paused_type(&definition.event_type).is_some() {
            return None;
        }
        (state.digest == definition.digest()).then(|| (due, definition.name.to_string()))
    };
    let mut late: Vec<_> = armed(topology, seen).filter_map(late).collect();
    late.sort();
    let due = late.first()?.0;
    let schedules = late.into_iter().map(|(_, name)| name).collect();
    Some(Finding::ScheduleLate { schedules, due, ago: relative(seen.at, due, 1) })
}

/// Finds schedules that are not armed as the file says.
pub(super) fn schedules_not_applied(topology: &Topology, seen: &Observation) -> Option<Finding> {
    let states = seen.schedules.as_ref()?;
    let is_applied = |definition: &Definition| {
        states.get(definition.name.as_str()).is_some_and(|state| state.digest == definition.digest())
    };
    let others = topology.schedules.values().filter(|definition| !is_applied(definition));
    let schedules: Vec<String> = others.map(|definition| definition.name.to_string()).collect();
    (!schedules.is_empty()).then_some(Finding::ScheduleNotApplied { schedules })
}

pub(super) fn schedules_paused(topology: &Topology, seen: &Observation) -> Option<Finding> {
    let paused = armed(topology, seen).filter_map(|(definition, state)| Some((definition, state.paused.as_ref()?)));
    let paused: Vec<_> = paused.collect();
    let why = paused.first()?.1.reason.clone();
    let schedules = paused.iter().map(|(definition, _)| definition.name.to_string()).collect();
    Some(Finding::SchedulePaused { schedules, why })
}

/// Returns the schedules of the file that Redis knows.
fn armed<'a>(
    topology: &'a Topology,
    seen: &'a Observation,
) -> impl Iterator<Item = (&'a Definition, &'a ScheduleState)> {
    let states = seen.schedules.iter();
    states.flat_map(|states| {
        topology.schedules.values().filter_map(|definition| Some((definition, states.get(definition.name.as_str())?)))
    })
}

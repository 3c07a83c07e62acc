//! Finds workers that are there and get nothing done.

use std::collections::BTreeMap;

use hatchery::{
    EventType, Topology,
    internals::{compile::Desired, names::Names, spec::OnFailure},
};

use super::{
    finding::Finding,
    observation::Observation,
    silence::{patience, silent_for},
};
use crate::{figures::Channel, names::consumed_type, text::quoted};

/// Finds connections that hold deliveries of this topology and have acknowledged none for too long. A channel that
/// consumes nothing has asked for each of its deliveries (`basic.get`), and the broker does not say of which queue.
pub(super) fn silent(topology: &Topology, desired: &Desired, seen: &Observation) -> Vec<Finding> {
    let owned: Vec<&str> = desired.queues.iter().map(|queue| queue.name.as_str()).collect();
    let is_held = owned.iter().any(|name| {
        seen.queue(name).and_then(|figures| figures.counts.messages_unacknowledged).is_some_and(|held| held > 0)
    });
    let is_ours = |queues: &[String]| {
        if queues.is_empty() { is_held } else { queues.iter().any(|queue| owned.contains(&queue.as_str())) }
    };
    // A worker of a type that keeps its order holds its deliveries while its handler is unavailable, which is a finding by
    // itself.
    let waits = |queue: &String| {
        seen.consumers
            .iter()
            .any(|consumer| consumer.queue == *queue && consumer.unavailable.is_some() && !consumer.waits)
    };
    let names = Names::new(topology.name.clone());
    // As does a worker of a type that is paused, which consumes nothing meanwhile, or whose breaker is open. Once the type runs
    // again, its first run may take as long as any other.
    let was_held = |event_type: &EventType, channel: &Channel| {
        seen.held_until(event_type)
            .is_some_and(|until| seen.at.duration_since(until).unsigned_abs() <= patience(topology, channel))
    };
    let is_explained = |channel: &Channel| {
        let types = || topology.types.keys();
        let held = |queue: &String| {
            waits(queue) || types().any(|name| names.processing(name) == *queue && was_held(name, channel))
        };
        match channel.queues.as_slice() {
            [] => channel.is_worker && types().any(|name| was_held(name, channel)),
            queues => queues.iter().all(held),
        }
    };
    let channels = seen.channels.iter().flatten();
    let channels = channels.filter(|channel| is_ours(&channel.queues) && !is_explained(channel));
    let mut findings: Vec<Finding> = channels
        .filter_map(|channel| {
            let silent = silent_for(channel).filter(|silent| *silent > patience(topology, channel))?;
            if let Some(types) = blocking(topology, channel) {
                return Some(Finding::Blocked {
                    types: types.iter().map(ToString::to_string).collect(),
                    connection: channel.connection.clone(),
                    program: channel.program.clone(),
                    held: channel.held,
                    silent_seconds: silent.as_secs(),
                    show: show(topology, &seen.vhost, &types),
                });
            }
            Some(Finding::NotAcknowledging {
                connection: channel.connection.clone(),
                program: channel.program.clone(),
                queues: channel.queues.clone(),
                held: channel.held,
                silent_seconds: silent.as_secs(),
                // `topology dead-letter` holds letters too.
                worker: channel.is_worker && channel.queues.iter().any(|queue| consumed_type(queue).is_some()),
            })
        })
        .collect();
    findings.sort_by_key(|finding| match finding {
        Finding::NotAcknowledging { held, .. } | Finding::Blocked { held, .. } => std::cmp::Reverse(*held),
        _ => std::cmp::Reverse(0),
    });
    findings
}

/// Returns a finding for each reason for which handlers are unavailable. Of a type that keeps its order only the active worker
/// counts: the others try nothing.
pub(super) fn unavailable(topology: &Topology, seen: &Observation) -> Vec<Finding> {
    let names = Names::new(topology.name.clone());
    // By reason: the types, and how many of their workers are concerned.
    let mut by_reason: BTreeMap<&str, (Vec<&EventType>, u64, u64)> = BTreeMap::new();
    for event_type in topology.types.keys() {
        let queue = names.processing(event_type);
        let workers = || seen.consumers.iter().filter(|consumer| consumer.queue == queue && !consumer.waits);
        let mut reasons = workers().filter_map(|consumer| consumer.unavailable.as_deref());
        let Some(why) = reasons.next() else { continue };
        let (types, away, of) = by_reason.entry(why).or_default();
        types.push(event_type);
        *away += 1 + count(reasons);
        *of += count(workers());
    }
    let finding = |(why, (types, workers, of)): (&str, (Vec<&EventType>, u64, u64))| {
        let show = show(topology, &seen.vhost, &types);
        let types = types.into_iter().map(ToString::to_string).collect();
        Finding::HandlerUnavailable { why: why.to_owned(), types, workers, of, show }
    };
    by_reason.into_iter().map(finding).collect()
}

fn count<T>(all: impl Iterator<Item = T>) -> u64 {
    u64::try_from(all.count()).unwrap_or(u64::MAX)
}

/// Returns the types that a channel consumes, if each of them keeps its order. A worker of such a type holds its deliveries
/// while it tries the oldest event again and again.
fn blocking<'t>(topology: &'t Topology, channel: &Channel) -> Option<Vec<&'t EventType>> {
    let names = Names::new(topology.name.clone());
    let ordered = topology.types.iter().filter(|(_, spec)| spec.on_failure == OnFailure::Block);
    let queues: BTreeMap<String, &EventType> = ordered.map(|(name, _)| (names.processing(name), name)).collect();
    let types: Option<Vec<_>> = channel.queues.iter().map(|queue| queues.get(queue).copied()).collect();
    types.filter(|types| !types.is_empty())
}

/// Returns the command that shows the events of one of these types, or else what the workers say: without the register the
/// events have no list.
fn show(topology: &Topology, vhost: &str, types: &[&EventType]) -> String {
    let is_registered = |name: &&&EventType| topology.types.get(name.as_str()).is_some_and(|spec| spec.register);
    match types.iter().find(is_registered) {
        Some(name) => format!("topology events list --type {name} --due-before now"),
        None => format!("rabbitmqctl list_consumers -p {} queue_name channel_pid arguments", quoted(vhost)),
    }
}

//! Derives the findings from an observation. Pure: equal observations have equal findings.

use std::collections::BTreeMap;

use hatchery::{
    EventType, Topology,
    internals::{breaker::BreakerState, compile::Desired, redis::ReportedClock, register::ended_runs::Unrecorded},
};
use jiff::Timestamp;

use super::{
    failing::failing,
    finding::{Finding, Letters, OpenBreaker, Queue},
    observation::{Blind, Observation, OverdueEvent},
    redis::{in_redis, just_back, stops_workers},
    schedules::{schedules_late, schedules_not_applied, schedules_paused},
    severity::Severity,
    shadows::shadows,
    strangers::strangers,
    wedged::wedged,
    workers::{silent, unavailable},
};
use crate::{
    figures::{Figures, QueueFigures, Sample},
    names::{self, Names},
    plan::{Action, Change, WrongObject, misrouting, plan, shadowing, wrong_objects},
    text::relative,
};

/// Returns the findings, the worst first.
pub(super) fn findings(topology: &Topology, desired: &Desired, seen: &Observation) -> Vec<Finding> {
    let alone = without_consumer(desired, seen);
    // The workers of these types may be there: they do not consume until they find that Redis is back.
    let does_stop = stops_workers(seen) || just_back(seen).is_some();
    let (wait_for_redis, alone): (Vec<_>, Vec<_>) =
        alone.into_iter().partition(|queue| does_stop && is_registered(topology, queue));
    let (redis_stops, of_redis) = stuck_first(in_redis(topology, seen, &wait_for_redis));
    let mut findings = Vec::new();
    let wrong = seen.objects.as_ref().map(|objects| wrong_objects(desired, objects)).unwrap_or_default();
    if !wrong.is_empty() {
        findings.push(Finding::WrongObjects { objects: wrong.clone() });
    }
    findings.extend(alarms(seen));
    let (shadows, may_shadow) = stuck_first(shadows(desired, seen));
    findings.extend(shadows);
    let not_applied = not_applied(topology, seen);
    let is_applied = not_applied.is_none();
    findings.extend(not_applied);
    findings.extend(switches_unread(seen).filter(|_| is_applied));
    // A state of Redis that stops workers stops most types.
    findings.extend(redis_stops);
    findings.extend(in_wedged(desired, seen));
    findings.extend(unrouted(topology, seen));
    let no_consumer = no_consumer(topology, seen, alone);
    let silent = silent(topology, desired, seen);
    let (stuck, partial) = stuck_first(unavailable(topology, seen));
    let (breakers, half_open) = stuck_first(breakers_open(topology, seen));
    let failing = failing(topology, seen);
    let overdue = overdue(topology, seen, &explained(no_consumer.iter().chain(&silent).chain(&stuck).chain(&breakers)));
    findings.extend(no_consumer);
    findings.extend(sources(topology, desired, seen));
    findings.extend(strangers(topology, desired, seen));
    findings.extend(silent);
    findings.extend(stuck);
    findings.extend(breakers);
    findings.extend(failing);
    findings.extend(overdue);
    findings.extend(schedules_late(topology, seen));
    findings.extend(in_misrouting(desired, seen));
    findings.extend(of_redis);
    findings.extend(wrong_clocks(seen));
    findings.extend(unrecorded(seen));
    findings.extend(partial);
    findings.extend(half_open);
    findings.extend(may_shadow);
    findings.extend(blind(seen));
    findings.extend(schedules_not_applied(topology, seen));
    findings.extend(schedules_paused(topology, seen));
    findings.extend(drift(desired, seen, &wrong).filter(|_| is_applied));
    findings.extend(dead_letters(desired, seen));
    findings
}

/// Divides findings into those because of which events are stuck, and the others.
fn stuck_first(findings: impl IntoIterator<Item = Finding>) -> (Vec<Finding>, Vec<Finding>) {
    findings.into_iter().partition(|finding| finding.severity() == Severity::Stuck)
}

fn breakers_open(topology: &Topology, seen: &Observation) -> Option<Finding> {
    let open = |(name, state): (&EventType, &BreakerState)| {
        let opening = state.opening.as_ref().filter(|_| !state.is_closed())?;
        let opened_at = Timestamp::from_millisecond(opening.at).ok()?;
        let spec = topology.types.get(name)?.breaker.as_ref()?;
        let is_half_open = state.is_half_open(spec, seen.at.as_millisecond());
        Some(OpenBreaker {
            event_type: name.to_string(),
            state: if is_half_open { "half-open" } else { "open" },
            opened_at,
            ago: relative(seen.at, opened_at, 1),
            errors: opening.errors,
            runs: opening.runs,
            reason: opening.reasons.last().cloned(),
            waits_for_a_person: spec.cooldown.is_none(),
        })
    };
    let mut breakers: Vec<OpenBreaker> = seen.breakers.iter().filter_map(open).collect();
    breakers.sort_by_key(OpenBreaker::is_half_open);
    (!breakers.is_empty()).then_some(Finding::BreakerOpen { breakers })
}

fn wrong_clocks(seen: &Observation) -> impl Iterator<Item = Finding> {
    seen.wrong_clocks.iter().map(|ReportedClock { machine, ahead }| Finding::ClockWrong {
        machine: machine.clone(),
        ahead_seconds: ahead.as_secs(),
    })
}

fn unrecorded(seen: &Observation) -> Option<Finding> {
    let Unrecorded { records, why } = seen.reported.unrecorded.clone();
    (records > 0).then_some(Finding::NotRecorded { records, why })
}

fn alarms(seen: &Observation) -> Option<Finding> {
    let alarms = seen.alarms.clone().filter(|alarms| !alarms.is_empty())?;
    Some(Finding::BrokerAlarm { alarms })
}

fn not_applied(topology: &Topology, seen: &Observation) -> Option<Finding> {
    let exchange = names::scheduler(topology.name.as_str());
    let is_missing = match &seen.objects {
        Some(objects) => objects.exchanges.iter().all(|live| live.name != exchange),
        None => seen.missing.contains(&exchange),
    };
    is_missing.then_some(Finding::NotApplied { exchange })
}

/// Finds that workers cannot read what is paused.
fn switches_unread(seen: &Observation) -> Option<Finding> {
    Some(Finding::SwitchesUnread { why: seen.switches_unread.clone()? })
}

fn in_wedged(desired: &Desired, seen: &Observation) -> Option<Finding> {
    let mut queues = wedged(desired, &seen.readings);
    fullest_first(&mut queues);
    (!queues.is_empty()).then_some(Finding::Wedged { queues })
}

fn unrouted(topology: &Topology, seen: &Observation) -> Option<Finding> {
    let queue = names::unrouted(topology.name.as_str());
    let messages = seen.held([queue.as_str()]).filter(|messages| *messages > 0)?;
    Some(Finding::Unrouted { queue: Queue { queue, messages } })
}

/// Finds bindings that the file does not ask for, to queues that it does.
fn in_misrouting(desired: &Desired, seen: &Observation) -> Option<Finding> {
    let found = misrouting(desired, seen.objects.as_ref()?);
    let prunable = found.iter().all(|(_, prunable)| *prunable);
    let bindings: Vec<String> = found.into_iter().map(|(binding, _)| binding.name).collect();
    (!bindings.is_empty()).then_some(Finding::Misrouting { bindings, prunable })
}

/// Finds queues that workers consume, with events and without a consumer. They may have left the file: their events wait
/// all the same.
fn without_consumer(desired: &Desired, seen: &Observation) -> Vec<Queue> {
    let is_consumed = |queue: &str| {
        names::consumed_source(queue).is_none() && desired.owners().any(|owner| names::is_consumed(owner, queue))
    };
    let has_none = |figures: &Figures| figures.counts.consumers == Some(0);
    // Workers take the events of a quarantine queue one by one, without a consumer. They are those of the processing queue.
    let has_no_worker =
        |name: &str| names::processing_beside(name).is_none_or(|queue| seen.queue(&queue).is_none_or(has_none));
    let queues = seen.queues().iter();
    let alone = queues.filter(|(name, figures)| is_consumed(name) && has_none(figures) && has_no_worker(name));
    // The workers of a paused type consume nothing.
    let alone = alone.filter(|(name, _)| !seen.is_paused(name));
    let mut queues: Vec<Queue> = alone.filter_map(|(name, figures)| waiting(name, figures)).collect();
    fullest_first(&mut queues);
    queues
}

/// Returns whether this is a queue of a type of the file that uses the register.
fn is_registered(topology: &Topology, queue: &Queue) -> bool {
    let event_type = names::consumed_type(&queue.queue);
    event_type.and_then(|name| topology.types.get(name)).is_some_and(|spec| spec.register)
}

/// Returns the queues that need a consumer and have none, the fullest of each kind first.
pub(super) fn unconsumed(topology: &Topology, desired: &Desired, seen: &Observation) -> Vec<String> {
    let all = findings(topology, desired, seen).into_iter().map(|finding| match finding {
        Finding::NoConsumer { queues, .. } | Finding::SourceNoConsumer { queues, .. } => queues,
        _ => Vec::new(),
    });
    all.flatten().map(|queue| queue.queue).collect()
}

/// Returns the first of these queues whose messages were delivered again.
fn redelivered(seen: &Observation, queues: &[Queue]) -> Option<String> {
    queues.iter().map(|queue| &queue.queue).find(|name| seen.redelivered.contains(*name)).cloned()
}

fn no_consumer(topology: &Topology, seen: &Observation, queues: Vec<Queue>) -> Option<Finding> {
    let event_type = names::consumed_type(&queues.first()?.queue)?.to_owned();
    let mut types: Vec<String> = Vec::new();
    for name in queues.iter().filter_map(|queue| names::consumed_type(&queue.queue)) {
        // A worker refuses a type that has left the file.
        if topology.types.contains_key(name) && !types.iter().any(|known| known == name) {
            types.push(name.to_owned());
        }
    }
    let redelivered = redelivered(seen, &queues);
    Some(Finding::NoConsumer { queues, event_type, types, redelivered })
}

/// Finds queues of sources with messages and without a consumer, and queues of others that are not there. A declared queue
/// that has left the file may still get messages.
fn sources(topology: &Topology, desired: &Desired, seen: &Observation) -> Vec<Finding> {
    let names = Names::new(topology.name.clone());
    let mut of: BTreeMap<String, String> =
        topology.sources.iter().map(|(name, spec)| (spec.queue(&names, name), name.to_string())).collect();
    let is_paused = |queue: &str| {
        let mut sources = topology.sources.iter().filter(|(name, spec)| spec.queue(&names, name) == queue);
        sources.any(|(name, _)| seen.paused_source(name).is_some())
    };
    for queue in seen.queues().keys() {
        let is_ours = desired.owners().any(|owner| names::is_consumed(owner, queue));
        if let Some(source) = names::consumed_source(queue).filter(|_| is_ours) {
            of.entry(queue.clone()).or_insert_with(|| source.to_owned());
        }
    }
    let mut alone: Vec<Queue> = seen
        .queues()
        .iter()
        .filter(|(name, figures)| of.contains_key(*name) && figures.counts.consumers == Some(0) && !is_paused(name))
        .filter_map(|(name, figures)| waiting(name, figures))
        .collect();
    fullest_first(&mut alone);
    let missing: Vec<String> = match &seen.objects {
        // A declared queue that is missing is drift.
        Some(objects) => {
            let foreign = topology.sources.iter().filter(|(_, spec)| !spec.is_declared());
            let foreign = foreign.map(|(name, spec)| spec.queue(&names, name));
            foreign.filter(|queue| objects.queues.iter().all(|live| live.name != *queue)).collect()
        }
        None => Vec::new(),
    };
    let source = |queue: &str| of.get(queue).cloned().unwrap_or_default();
    let missing =
        missing.first().map(|first| Finding::SourceMissing { source: source(first), queues: missing.clone() });
    let redelivered = redelivered(seen, &alone);
    let alone = alone.first().map(|first| Finding::SourceNoConsumer {
        has_left: !topology.sources.contains_key(source(&first.queue).as_str()),
        source: source(&first.queue),
        redelivered,
        queues: alone.clone(),
    });
    missing.into_iter().chain(alone).collect()
}

fn waiting(name: &str, figures: &Figures) -> Option<Queue> {
    let messages = figures.counts.waiting().filter(|waiting| *waiting > 0)?;
    Some(Queue { queue: name.to_owned(), messages })
}

/// The causes that explain why the events of a type wait.
#[derive(Default)]
struct Explained<'f> {
    queues: Vec<&'f str>,
    types: Vec<&'f str>,
}

/// Returns what waits for a reason that another finding names.
fn explained<'f>(findings: impl Iterator<Item = &'f Finding>) -> Explained<'f> {
    let mut explained = Explained::default();
    for finding in findings {
        match finding {
            Finding::NoConsumer { queues, .. } => {
                explained.queues.extend(queues.iter().map(|queue| queue.queue.as_str()));
            }
            Finding::NotAcknowledging { queues, .. } => explained.queues.extend(queues.iter().map(String::as_str)),
            Finding::HandlerUnavailable { types, .. } | Finding::Blocked { types, .. } => {
                explained.types.extend(types.iter().map(String::as_str));
            }
            Finding::BreakerOpen { breakers } => {
                let open = breakers.iter().filter(|breaker| !breaker.is_half_open());
                explained.types.extend(open.map(|breaker| breaker.event_type.as_str()));
            }
            _ => {}
        }
    }
    explained
}

fn overdue(topology: &Topology, seen: &Observation, explained: &Explained<'_>) -> Option<Finding> {
    if stops_workers(seen) {
        return None;
    }
    let names = Names::new(topology.name.clone());
    let mut overdue: Vec<_> = seen
        .overdue
        .iter()
        .filter(|event| {
            seen.paused_type(&event.event_type).is_none()
                && !explained.types.contains(&event.event_type.as_str())
                && !explained.queues.contains(&names.processing(&event.event_type).as_str())
        })
        .collect();
    overdue.sort_by_key(|event| event.due);
    let first = overdue.first()?;
    Some(Finding::Overdue {
        event_type: first.event_type.to_string(),
        reference: first.reference.clone(),
        id: first.id.clone(),
        due: first.due,
        ago: relative(seen.at, first.due, 2),
        events: overdue.iter().map(|event| event.events).sum(),
        may_be_more: overdue.iter().any(|event| event.may_be_more),
        types: overdue.len(),
        command: command_for_overdue(topology, &overdue),
    })
}

/// Returns the command that runs overdue events now. Of types that keep no payloads there is nothing to publish again: the events
/// are listed.
fn command_for_overdue(topology: &Topology, overdue: &[&OverdueEvent]) -> String {
    let keeps = |event: &&&OverdueEvent| {
        topology.types.get(event.event_type.as_str()).is_some_and(|spec| spec.keep_payload.is_some())
    };
    let named = |event: &&OverdueEvent| format!("--type {}", event.event_type);
    let kept: Vec<String> = overdue.iter().filter(keeps).map(named).collect();
    let (verb, types) = if kept.is_empty() { ("list", overdue.iter().map(named).collect()) } else { ("run-now", kept) };
    // Without a state the dead letters of the types would be run too.
    format!("topology events {verb} {} --state waiting --state retry --due-before '1m ago'", types.join(" "))
}

fn blind(seen: &Observation) -> Option<Finding> {
    seen.blind.iter().find_map(|blind| match blind {
        Blind::Management { why } => Some(Finding::ManagementAway { why: why.clone() }),
        Blind::Channels
        | Blind::Rates
        | Blind::Switches { .. }
        | Blind::Breakers { .. }
        | Blind::Register { .. }
        | Blind::Writes
        | Blind::Eviction => None,
    })
}

/// Finds other differences from the file than those that have a finding of their own.
fn drift(desired: &Desired, seen: &Observation, wrong: &[WrongObject]) -> Option<Finding> {
    let Some(objects) = &seen.objects else {
        let missing = seen.missing.len();
        return (missing > 0).then_some(Finding::Drift { missing, changed: 0, to_migrate: 0, blocked: 0 });
    };
    let mut plan = plan(desired, objects);
    plan.changes.retain(|change| wrong.iter().all(|wrong| wrong.address != change.address));
    let counts = plan.counts();
    // A shadowed queue blocks the plan, and has a finding of its own. If it is blocked for another reason too, the plan says so
    // once the policy is gone.
    let harmed = shadowing(desired, objects).into_iter().filter(|shadowing| !shadowing.unknown);
    let shadowed: Vec<String> = harmed.flat_map(|shadowing| shadowing.queues).collect();
    let is_shadowed = |change: &&Change| change.action == Action::Blocked && shadowed.contains(&change.address.name);
    let blocked = counts.blocked - plan.changes.iter().filter(is_shadowed).count();
    let drift = Finding::Drift { missing: counts.add, changed: counts.change, to_migrate: counts.migrate, blocked };
    (counts.add + counts.change + counts.migrate + blocked > 0).then_some(drift)
}

/// Finds dead letters, also those of types and sources that have left the file.
fn dead_letters(desired: &Desired, seen: &Observation) -> Option<Finding> {
    let letters = letter_queues(desired, seen.queues()).filter_map(|(queue, figures)| {
        let messages = figures.held().filter(|messages| *messages > 0)?;
        let growth = seen.letters.get(queue).and_then(|samples| growth(samples, messages));
        let (more, within_seconds) = growth.unzip();
        let left_file = desired.has_left(queue);
        let not_open = seen.open_letters.get(queue).map(|open| messages.saturating_sub(*open));
        Some(Letters { queue: queue.clone(), messages, not_open, more, within_seconds, left_file })
    });
    let mut queues: Vec<Letters> = letters.collect();
    queues.sort_by_key(|letters| std::cmp::Reverse(letters.messages));
    (!queues.is_empty()).then_some(Finding::DeadLetters { queues })
}

/// Returns the dead-letter queues that are there, under any name of the topology.
fn letter_queues<'s>(
    desired: &'s Desired,
    queues: &'s QueueFigures,
) -> impl Iterator<Item = (&'s String, &'s Figures)> {
    queues.iter().filter(move |(queue, _)| names::holds_letters(desired.owners(), queue))
}

/// Returns by how many letters a queue has grown, and within how many seconds.
fn growth(samples: &[Sample], now: u64) -> Option<(u64, u64)> {
    let (last, first) = (samples.first()?, samples.last()?);
    let seconds = u64::try_from((last.timestamp - first.timestamp) / 1_000).ok().filter(|seconds| *seconds > 0)?;
    Some((now.saturating_sub(first.sample), seconds))
}

fn fullest_first(queues: &mut [Queue]) {
    queues.sort_by(|one, other| other.messages.cmp(&one.messages).then_with(|| one.queue.cmp(&other.queue)));
}

/// Returns the fullest dead-letter queues of an observation, at most this many.
pub(super) fn fullest_letters(desired: &Desired, figures: &QueueFigures, most: usize) -> Vec<String> {
    let full = |(queue, figures): (&String, &Figures)| Some((figures.held().filter(|held| *held > 0)?, queue.clone()));
    let mut full: Vec<(u64, String)> = letter_queues(desired, figures).filter_map(full).collect();
    full.sort_by(|one, other| other.cmp(one));
    full.into_iter().take(most).map(|(_, queue)| queue).collect()
}

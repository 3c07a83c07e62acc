//! Looks at a broker and a register in memory.

use std::collections::BTreeMap;

use hatchery::{
    EventInfo, EventType, RegisterError, State,
    internals::{
        breaker::BreakerState,
        in_memory::InMemory,
        names::{self, Names},
        ports::{Index as _, NamedStates as _, StateKind},
        register::{Subject, index::Find},
        schedule::state::ScheduleState,
        switches::Switches,
    },
};
use jiff::Timestamp;

use super::{
    observation::{Observation, ObservedRegister, Reading, Redis},
    summary::Status,
};
use crate::live::Counts;

/// The most events of a type that are looked at.
const OLDEST: usize = 1_000;

/// Returns the status of a topology in memory. It has no rates, and tells nothing of how runs ended.
pub(crate) async fn status(hatchery: &InMemory) -> Result<Status, RegisterError> {
    let InMemory { topology, desired, declared, register, clock, .. } = hatchery;
    let at = clock.now();
    let queues = counts(hatchery).into_iter().map(|(name, counts)| (name, counts.into())).collect();
    let mut seen = Observation {
        at,
        vhost: "/".to_owned(),
        readings: vec![Reading { at, queues }],
        objects: Some(declared.into()),
        channels: Some(Vec::new()),
        alarms: Some(Vec::new()),
        switches: Some(switches(hatchery)),
        ..Observation::default()
    };
    let types: Vec<EventType> =
        topology.types.iter().filter(|(_, spec)| spec.register).map(|(name, _)| name.clone()).collect();
    if types.is_empty() {
        return Ok(Status::of(topology, desired, &seen));
    }
    let counts = types.iter().cloned().zip(register.count(&types).await?).collect();
    seen.redis = Redis::There(ObservedRegister { counts, has_owner: true, ..ObservedRegister::default() });
    seen.schedules = Some(states(hatchery, StateKind::Schedule, ScheduleState::parse).await?);
    let breakers = states(hatchery, StateKind::Breaker, BreakerState::parse).await?;
    for (name, spec) in topology.types.iter().filter(|(_, spec)| spec.register && spec.breaker.is_some()) {
        if let Some(state) = breakers.get(spec.first_name(name).as_str()) {
            seen.breakers.insert(name.clone(), state.clone());
        }
    }
    let names = Names::new(topology.name.clone());
    for event_type in types {
        let due = due(hatchery, &event_type, at).await?;
        let letters = due.iter().filter(|event| event.state == State::DeadLetter).count();
        seen.open_letters.insert(names.dead_letters(&event_type), count(letters));
        let mut waiting = due.into_iter().filter(|event| matches!(event.state, State::Waiting | State::Retry));
        seen.oldest_due.insert(event_type, waiting.next().and_then(|event| event.due));
    }
    Ok(Status::of(topology, desired, &seen))
}

/// Returns the last snapshot of the switches.
pub(crate) fn switches(hatchery: &InMemory) -> Switches {
    let last = hatchery.broker.last_of(&names::control(&hatchery.desired.owner));
    last.and_then(|text| Switches::read(&text).ok()).unwrap_or_default()
}

/// Returns the counts of the queues.
pub(crate) fn counts(hatchery: &InMemory) -> BTreeMap<String, Counts> {
    let counts = |name: &String| {
        let [ready, delivered, consumers] = hatchery.broker.counts(name)?.map(|number| Some(count(number)));
        let messages = ready.zip(delivered).map(|(ready, delivered)| ready + delivered);
        let (messages_ready, messages_unacknowledged) = (ready, delivered);
        let counts = Counts { messages, messages_ready, messages_unacknowledged, consumers, ..Counts::default() };
        Some((name.clone(), counts))
    };
    hatchery.declared.queues.iter().filter_map(|queue| counts(&queue.name)).collect()
}

async fn states<T>(
    hatchery: &InMemory,
    kind: StateKind,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<BTreeMap<String, T>, RegisterError> {
    let texts = hatchery.register.states(kind).await?;
    Ok(texts.into_iter().filter_map(|(name, text)| Some((name, parse(&text)?))).collect())
}

/// Returns the events of a type that are due, the oldest first.
async fn due(hatchery: &InMemory, event_type: &EventType, at: Timestamp) -> Result<Vec<EventInfo>, RegisterError> {
    let subject = Subject { event_type: event_type.clone(), reference: None, id: String::new() };
    let (event_type, due_before) = (event_type.clone(), Some(at));
    let find = Find { event_type, due_from: None, due_before, uncontested_of: None, after: None, limit: OLDEST };
    let found = hatchery.register.find(&find).await?;
    Ok(found.events.into_iter().map(|shown| EventInfo::of(&subject, shown)).collect())
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

//! Finds what is wrong with Redis.

use std::time::Duration;

use hatchery::{Topology, internals::names::Names};

use super::{
    finding::{Finding, Queue},
    observation::{Observation, ObservedRegister, Redis},
    types::Queues,
};
use crate::text::relative;

/// Returns the findings about Redis. `queues`: those without a consumer.
pub(super) fn in_redis(topology: &Topology, seen: &Observation, queues: &[Queue]) -> Vec<Finding> {
    let waiting = queues.iter().map(|queue| queue.messages).sum();
    match &seen.redis {
        Redis::Unused | Redis::NotGiven => Vec::new(),
        Redis::Away { why } => vec![Finding::RedisAway { why: why.clone(), waiting }],
        Redis::Taken { by } => vec![Finding::RedisTaken { by: by.clone(), waiting }],
        Redis::There(register) => {
            let refuses = register.refusal.as_ref().map(|refusal| Finding::RedisTakesNoWrites {
                state: refusal.trouble.label(),
                why: refusal.why.clone(),
                waiting,
            });
            // A Redis that takes no writes has noted no event since, so it cannot be told from an emptied one.
            let events = if refuses.is_none() { forgotten(topology, seen, register) } else { 0 };
            let emptied = emptied(seen, events);
            let evicts = register.evicts.clone().map(|policy| Finding::RedisEvicts { policy });
            refuses.into_iter().chain(emptied).chain(evicts).collect()
        }
    }
}

/// Returns since when Redis has run, if workers may not have found yet that it is back: they ask after five seconds at the latest.
pub(super) fn just_back(seen: &Observation) -> Option<Duration> {
    seen.redis_up_for.filter(|up_for| *up_for < Duration::from_secs(10))
}

/// Returns whether the state of Redis keeps workers from taking events of types that use it.
pub(super) fn stops_workers(seen: &Observation) -> bool {
    match &seen.redis {
        Redis::Unused | Redis::NotGiven => false,
        Redis::Away { .. } | Redis::Taken { .. } => true,
        Redis::There(register) => register.refusal.is_some(),
    }
}

/// Finds that Redis was emptied within a day, or knows none of so many events.
fn emptied(seen: &Observation, events: u64) -> Option<Finding> {
    let at = seen.reported.emptied;
    let ago = at.map(|at| relative(seen.at, at, 1)).unwrap_or_default();
    (events > 0 || at.is_some()).then_some(Finding::RedisEmptied { events, at, ago })
}

/// Returns the number of events of registered types on the broker, if Redis has forgotten everything: no user, no event.
fn forgotten(topology: &Topology, seen: &Observation, register: &ObservedRegister) -> u64 {
    let knows_any = register.counts.values().any(|counts| counts.due + counts.delayed > 0);
    if register.has_owner || knows_any {
        return 0;
    }
    let names = Names::new(topology.name.clone());
    let registered = topology.types.iter().filter(|(_, spec)| spec.register);
    let queues = registered.map(|(name, spec)| Queues::of(&names, name, spec));
    queues.map(|queues| queues.into_names().filter_map(|queue| seen.held([queue.as_str()])).sum::<u64>()).sum()
}

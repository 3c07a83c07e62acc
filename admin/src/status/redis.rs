//! Finds what is wrong with Redis.

use hatchery::{Topology, internals::names::Names};

use super::{
    finding::{Finding, Queue},
    observation::{Observation, ObservedRegister, Redis},
    types::Queues,
};

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
            let emptied = if refuses.is_none() { emptied(topology, seen, register) } else { None };
            let evicts = register.evicts.clone().map(|policy| Finding::RedisEvicts { policy });
            refuses.into_iter().chain(emptied).chain(evicts).collect()
        }
    }
}

/// Returns whether the state of Redis keeps workers from taking events of types that use it.
pub(super) fn stops_workers(seen: &Observation) -> bool {
    match &seen.redis {
        Redis::Unused | Redis::NotGiven => false,
        Redis::Away { .. } | Redis::Taken { .. } => true,
        Redis::There(register) => register.refusal.is_some(),
    }
}

/// Finds that Redis has forgotten everything: no user, no event, while events of registered types are on the broker.
fn emptied(topology: &Topology, seen: &Observation, register: &ObservedRegister) -> Option<Finding> {
    let knows_any = register.counts.values().any(|counts| counts.due + counts.delayed > 0);
    if register.has_owner || knows_any {
        return None;
    }
    let names = Names::new(topology.name.clone());
    let registered = topology.types.iter().filter(|(_, spec)| spec.register);
    let queues = registered.map(|(name, spec)| Queues::of(&names, name, spec));
    let events =
        queues.map(|queues| queues.into_names().filter_map(|queue| seen.held([queue.as_str()])).sum::<u64>()).sum();
    (events > 0).then_some(Finding::RedisEmptied { events })
}

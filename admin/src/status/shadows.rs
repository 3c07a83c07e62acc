//! Finds strangers' policies, and the command that undoes their harm.

use std::collections::{BTreeMap, BTreeSet};

use hatchery::internals::compile::{Argument, Desired, Target};
use serde_json::Value;

use super::{
    finding::{Cure, Finding, Queue},
    observation::Observation,
    wedged::suspects,
};
use crate::{
    live::{LivePolicy, Observed},
    plan::{Shadowing, shadowing},
    text::quoted,
};

/// The keys that limit the length of a queue, and limits that count as raised.
const LIMITS: [(&str, u64); 2] = [(LENGTH, 1_000_000), ("max-length-bytes", 1_000_000_000_000)];

const LENGTH: &str = "max-length";

/// Returns the policies that shadow owned queues, those first that keep events in wedged timers.
pub(super) fn shadows(desired: &Desired, seen: &Observation) -> Vec<Finding> {
    let Some(objects) = &seen.objects else { return Vec::new() };
    // Timers that may be wedged count too: until more readings tell, the policy must stay.
    let targets = targets(desired, &suspects(desired, &seen.readings));
    let finding = |shadowing: Shadowing| {
        let limits_a_target = shadowing.queues.iter().any(|queue| targets.contains(queue.as_str()));
        let cure = if limits_a_target { cure(&shadowing, objects, seen) } else { Cure::Clear };
        Finding::Shadowed { shadowing, vhost: seen.vhost.clone(), cure }
    };
    let mut findings: Vec<Finding> = shadowing(desired, objects).into_iter().map(finding).collect();
    findings.sort_by_key(|finding| matches!(finding, Finding::Shadowed { cure: Cure::Clear, .. }));
    findings
}

/// Returns the queues that these timers may deliver into. A policy on another queue does not wedge them.
fn targets<'a>(desired: &'a Desired, timers: &[Queue]) -> BTreeSet<&'a str> {
    let is_timer = |name: &str| timers.iter().any(|timer| timer.queue == name);
    let text = |arguments: &'a BTreeMap<String, Argument>, key: &str| arguments.get(key).and_then(Argument::as_text);
    let of_timers = desired.queues.iter().filter(|queue| is_timer(&queue.name));
    let mut exchanges: Vec<&str> =
        of_timers.filter_map(|queue| text(&queue.arguments, "x-dead-letter-exchange")).collect();
    let (mut followed, mut queues) = (BTreeSet::new(), BTreeSet::new());
    while let Some(exchange) = exchanges.pop() {
        if !followed.insert(exchange) {
            continue;
        }
        let all = desired.exchanges.iter().filter(|other| other.name == exchange);
        exchanges.extend(all.filter_map(|exchange| text(&exchange.arguments, "alternate-exchange")));
        for binding in desired.bindings.iter().filter(|binding| binding.source == exchange) {
            match &binding.target {
                Target::Exchange(name) => exchanges.push(name),
                Target::Queue(name) => drop(queues.insert(name.as_str())),
            }
        }
    }
    queues
}

/// Returns what to do about a policy on a queue that wedged timers deliver into.
fn cure(shadowing: &Shadowing, objects: &Observed, seen: &Observation) -> Cure {
    let policies = if shadowing.operator { &objects.operator_policies } else { &objects.policies };
    let Some(policy) = policies.iter().find(|policy| policy.name == shadowing.policy) else { return Cure::Clear };
    if !LIMITS.iter().any(|(key, _)| policy.definition.contains_key(*key)) {
        return Cure::Clear;
    }
    let held = |queue: &String| seen.queue(queue)?.counts.messages;
    let longest = shadowing.queues.iter().filter_map(held).max().unwrap_or_default();
    // A limit that is high enough stays: the command lowers none.
    let raised: Vec<(&str, u64)> = LIMITS
        .into_iter()
        .filter_map(|(key, raised)| {
            // RabbitMQ's figures for `status` have no bytes.
            let longest = if key == LENGTH { longest } else { 0 };
            let limit = policy.definition.get(key)?.as_u64().unwrap_or_default();
            // A power of ten, so that the command stays the same while the queue grows a little.
            let above = 10_u64.saturating_pow(longest.checked_ilog10().map_or(0, |digits| digits + 1));
            (limit < raised || limit <= longest).then_some((key, raised.max(above)))
        })
        .collect();
    if raised.is_empty() { Cure::Wait } else { Cure::Raise(raise(policy, shadowing.operator, &raised, &seen.vhost)) }
}

/// Returns the command that sets a policy anew with these limits, and otherwise as it is.
fn raise(policy: &LivePolicy, is_operator: bool, limits: &[(&str, u64)], vhost: &str) -> String {
    let what = if is_operator { "set_operator_policy" } else { "set_policy" };
    let mut definition = policy.definition.clone();
    for (key, raised) in limits {
        definition.insert((*key).to_owned(), Value::from(*raised));
    }
    let definition = serde_json::to_string(&definition).unwrap_or_default();
    let apply_to = if policy.apply_to.is_empty() { "all" } else { &policy.apply_to };
    format!(
        "rabbitmqctl {what} -p {} --priority {} --apply-to {} {} {} {}",
        quoted(vhost),
        policy.priority,
        quoted(apply_to),
        quoted(&policy.name),
        quoted(&policy.pattern),
        quoted(&definition),
    )
}

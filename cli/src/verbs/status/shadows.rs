//! Finds strangers' policies, and the command that undoes their harm.

use hatchery::internals::compile::Desired;
use serde_json::Value;

use super::{
    finding::{Cure, Finding},
    observation::Observation,
    wedged::suspects,
    words::quoted,
};
use crate::{
    observed::{LivePolicy, Observed},
    plan::{Shadowing, shadowing},
};

/// The keys that limit the length of a queue.
const LIMITS: [&str; 2] = ["max-length", "max-length-bytes"];

/// A limit that no queue reaches. A policy with at least this limit counts as raised.
const RAISED: [u64; 2] = [1_000_000, 1_000_000_000_000];

/// Returns the policies that shadow owned queues, those first that keep events in wedged timers.
pub(super) fn shadows(desired: &Desired, seen: &Observation) -> Vec<Finding> {
    let Some(objects) = &seen.objects else { return Vec::new() };
    // Those that may be wedged count too: until more readings tell, the policy must stay.
    let is_wedged = !suspects(desired, &seen.readings).is_empty();
    let finding = |shadowing: Shadowing| {
        let cure = if is_wedged { cure(&shadowing, objects, &seen.vhost) } else { Cure::Clear };
        Finding::Shadowed { shadowing, vhost: seen.vhost.clone(), cure }
    };
    let mut findings: Vec<Finding> = shadowing(desired, objects).into_iter().map(finding).collect();
    findings.sort_by_key(|finding| matches!(finding, Finding::Shadowed { cure: Cure::Clear, .. }));
    findings
}

/// Returns what to do about a policy while timers are wedged.
fn cure(shadowing: &Shadowing, objects: &Observed, vhost: &str) -> Cure {
    let policies = if shadowing.operator { &objects.operator_policies } else { &objects.policies };
    let Some(policy) = policies.iter().find(|policy| policy.name == shadowing.policy) else { return Cure::Clear };
    let limits: Vec<(&str, u64)> =
        LIMITS.into_iter().zip(RAISED).filter(|(key, _)| policy.definition.contains_key(*key)).collect();
    if limits.is_empty() {
        return Cure::Clear;
    }
    let is_raised =
        |(key, raised): &(&str, u64)| policy.definition[*key].as_u64().is_some_and(|limit| limit >= *raised);
    if limits.iter().all(is_raised) {
        Cure::Wait
    } else {
        Cure::Raise(raise(policy, shadowing.operator, &limits, vhost))
    }
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

//! Finds strangers' policies that apply to an owned queue.

use std::{collections::BTreeMap, time::Duration};

use fancy_regex::Regex;
use hatchery::internals::{
    compile::{Desired, Policy, STREAM},
    names,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{
    compare,
    policy_keys::{self, Effect},
};
use crate::live::{LivePolicy, LiveQueue, Observed};

/// Returns the keys of a policy that have this effect on a queue of this kind.
fn keys<'a>(policy: &'a LivePolicy, kind: &str, what: Effect) -> Vec<&'a str> {
    let definition = policy.definition.iter();
    definition
        .filter(|(key, value)| policy_keys::effect(key, value, kind) == what)
        .map(|(key, _)| key.as_str())
        .collect()
}

/// The policies of a virtual host: ours as they will be after `apply`, and the strangers'.
pub(super) struct Shadows<'a> {
    own: Vec<(&'a Policy, Pattern)>,
    user: Vec<(&'a LivePolicy, Pattern)>,
    operator: Vec<(&'a LivePolicy, Pattern)>,
}

impl<'a> Shadows<'a> {
    pub(super) fn new(desired: &'a Desired, observed: &'a Observed) -> Self {
        let own = &desired.policies;
        // A policy is ours by its name, even if the file no longer asks for it.
        let is_ours = |live: &LivePolicy| desired.owners().any(|owner| names::policies(owner).contains(&live.name));
        let is_own = |live: &LivePolicy| is_ours(live) || own.iter().any(|own| own.name == live.name);
        let strangers = observed.policies.iter().filter(|live| !is_own(live));
        let live = |live: &'a LivePolicy| (live, Pattern::of(live));
        Self {
            own: own
                .iter()
                .map(|own| (own, Pattern::new(&own.pattern, Policy::APPLY_TO, own.definition.keys())))
                .collect(),
            user: strangers.map(live).collect(),
            operator: observed.operator_policies.iter().map(live).collect(),
        }
    }

    /// Returns the strangers' policies that win on a queue, which may not exist yet.
    pub(super) fn on(&self, name: &str, kind: &str, live: Option<&LiveQueue>) -> Vec<Shadow<'a>> {
        let own = self.own.iter().find(|(_, pattern)| pattern.matches(name, kind)).map(|(own, _)| own);
        let said = live.and_then(|live| live.policy.as_deref());
        let user =
            winner(&self.user, name, kind, said).filter(|user| own.is_none() || user.priority >= Policy::PRIORITY);
        let said = live.and_then(|live| live.operator_policy.as_deref());
        let operator = winner(&self.operator, name, kind, said);
        let user = user.map(|policy| {
            let instead = own.map(|own| format!("shadowed by policy {}: {} does not apply", policy.name, own.name));
            let shadow = Shadow::of(policy, "policy", kind);
            Shadow { harm: shadow.harm.or(instead), ..shadow }
        });
        let operator = operator.map(|policy| Shadow::of(policy, "operator policy", kind));
        user.into_iter().chain(operator).collect()
    }
}

/// A stranger's policy that takes away from owned queues what their safety depends on, or may do so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shadowing {
    /// The name of the policy.
    pub policy: String,
    /// Whether it is an operator policy.
    pub operator: bool,
    /// The keys that do harm. Empty if it only keeps the topology's own policy from applying.
    pub keys: Vec<String>,
    /// Whether the effect of `keys` is unknown, so that they may do harm.
    pub unknown: bool,
    /// The owned queues that it applies to.
    pub queues: Vec<String>,
}

impl Shadowing {
    /// Tells whether the policy applies to the stream with the life of events alone.
    #[must_use]
    pub(crate) fn is_of_life_cycle(&self) -> bool {
        self.queues.iter().all(|queue| queue.ends_with(".life-cycle"))
    }
}

/// Returns the strangers' policies that harm queues of the file, or have keys of which nothing is known.
#[must_use]
pub fn shadowing(desired: &Desired, observed: &Observed) -> Vec<Shadowing> {
    let shadows = Shadows::new(desired, observed);
    let live: BTreeMap<&str, &LiveQueue> = observed.queues.iter().map(|live| (live.name.as_str(), live)).collect();
    let mut found: BTreeMap<(&str, bool), Shadowing> = BTreeMap::new();
    for queue in &desired.queues {
        let live = live.get(queue.name.as_str()).copied();
        // A queue that is not migrated yet has another type than the file says.
        let kind = live.and_then(|live| live.kind.as_deref()).unwrap_or_else(|| compare::type_of(&queue.arguments));
        let over = shadows.on(&queue.name, kind, live);
        for shadow in over.iter().filter(|shadow| shadow.harm.is_some() || !shadow.unknown.is_empty()) {
            let (policy, operator) = (shadow.policy, shadow.kind != "policy");
            let (unknown, what) = if shadow.harm.is_some() { (false, Effect::Harm) } else { (true, Effect::Unknown) };
            let fresh = || {
                let keys = keys(policy, kind, what).into_iter().map(str::to_owned).collect();
                Shadowing { policy: policy.name.clone(), operator, keys, unknown, queues: Vec::new() }
            };
            let shadowing = found.entry((&policy.name, operator)).or_insert_with(fresh);
            // Harm to one queue counts, whatever the key does to another.
            if shadowing.unknown && !unknown {
                *shadowing = fresh();
            }
            if shadowing.unknown == unknown {
                shadowing.queues.push(queue.name.clone());
            }
        }
    }
    found.into_values().collect()
}

/// A stranger's policy that wins on a queue.
pub(super) struct Shadow<'a> {
    policy: &'a LivePolicy,
    kind: &'static str,
    /// Why the queue would not work as the file says; `None` if the policy is not known to do harm.
    pub(super) harm: Option<String>,
    /// The keys of which nothing is known.
    pub(super) unknown: Vec<&'a str>,
}

impl<'a> Shadow<'a> {
    fn of(policy: &'a LivePolicy, kind: &'static str, queue: &str) -> Self {
        let harmful = keys(policy, queue, Effect::Harm);
        let harm =
            (!harmful.is_empty()).then(|| format!("shadowed by {kind} {} ({})", policy.name, harmful.join(", ")));
        Self { policy, kind, harm, unknown: keys(policy, queue, Effect::Unknown) }
    }

    /// Returns how long the broker waits for an acknowledgement by this policy.
    pub(super) fn consumer_timeout(&self) -> Option<Duration> {
        self.policy.definition.get("consumer-timeout").and_then(Value::as_u64).map(Duration::from_millis)
    }

    /// Returns its kind and name, for people.
    pub(super) fn name(&self) -> String {
        format!("{} {}", self.kind, self.policy.name)
    }

    /// Returns its name, and a sentence about its keys, for people.
    pub(super) fn policy(&self) -> (&str, String) {
        let keys: Vec<&str> = self.policy.definition.keys().map(String::as_str).collect();
        let what = if self.kind == "policy" { "wins" } else { "is an operator's, and wins" };
        let says = match self.unknown.as_slice() {
            [] => format!("{what} on owned queues, and does no harm ({})", keys.join(", ")),
            unknown => format!("{what} on owned queues, and may do harm: nothing is known of {}", unknown.join(", ")),
        };
        (&self.policy.name, says)
    }
}

/// Returns the policy that applies: the matching one with the highest priority. The broker's own answer about an
/// existing queue counts as a match, and decides between equal priorities.
fn winner<'a>(
    policies: &[(&'a LivePolicy, Pattern)],
    name: &str,
    kind: &str,
    said: Option<&str>,
) -> Option<&'a LivePolicy> {
    let is_said = |policy: &LivePolicy| said == Some(policy.name.as_str());
    policies
        .iter()
        .filter(|(policy, pattern)| is_said(policy) || pattern.matches(name, kind))
        .map(|(policy, _)| *policy)
        .max_by_key(|policy| (policy.priority, is_said(policy)))
}

/// The queues that a policy applies to. RabbitMQ's patterns are Perl regular expressions, so look-around must work:
/// `^(?!amq\.)` is in every second tutorial.
struct Pattern {
    /// `None` if the pattern cannot be read. Then only the broker's answer about an existing queue counts.
    regex: Option<Regex>,
    /// The queue type that it applies to; `None` for all types.
    kind: Option<String>,
    queues: bool,
    /// The types of queue that support all its keys.
    supporting: Vec<&'static str>,
}

impl Pattern {
    fn of(policy: &LivePolicy) -> Self {
        Self::new(&policy.pattern, &policy.apply_to, policy.definition.keys())
    }

    fn new<'a>(pattern: &str, apply_to: &str, keys: impl Iterator<Item = &'a String>) -> Self {
        let kind = if apply_to == "streams" { Some(STREAM) } else { apply_to.strip_suffix("_queues") };
        let kind = kind.map(str::to_owned);
        let queues = matches!(apply_to, "" | "all" | "queues") || kind.is_some();
        let keys: Vec<&String> = keys.collect();
        let supports =
            |kind: &&str| !keys.iter().any(|key| policy_keys::effect(key, &Value::Null, kind) == Effect::Apart);
        let supporting = [policy_keys::QUORUM, compare::CLASSIC, STREAM].into_iter().filter(supports).collect();
        Self { regex: Regex::new(pattern).ok(), kind, queues, supporting }
    }

    fn matches(&self, queue: &str, kind: &str) -> bool {
        self.queues
            && self.kind.as_deref().is_none_or(|only| only == kind)
            && self.supporting.contains(&kind)
            && self.regex.as_ref().is_some_and(|regex| regex.is_match(queue).unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("^billing\\.", "queues", true)]
    #[case("ill", "all", true)]
    #[case("", "", true)]
    #[case("^(?!amq\\.).*", "queues", true)]
    #[case("^(?!billing\\.).*", "queues", false)]
    #[case(".*", "exchanges", false)]
    #[case(".*", "streams", false)]
    #[case(".*", "quorum_queues", true)]
    #[case(".*", "classic_queues", false)]
    #[case("(", "queues", false)]
    fn a_policy_applies_to_queues_that_match_its_pattern(
        #[case] pattern: &str,
        #[case] apply_to: &str,
        #[case] expected: bool,
    ) {
        let policy = LivePolicy { pattern: pattern.to_owned(), apply_to: apply_to.to_owned(), ..LivePolicy::default() };
        assert_eq!(Pattern::of(&policy).matches("billing.hatchery.5m", "quorum"), expected);
    }

    #[rstest]
    #[case("streams", true)]
    #[case("queues", true)]
    #[case("all", true)]
    #[case("quorum_queues", false)]
    #[case("classic_queues", false)]
    fn a_policy_applies_to_streams(#[case] apply_to: &str, #[case] expected: bool) {
        let policy = LivePolicy { pattern: ".*".to_owned(), apply_to: apply_to.to_owned(), ..LivePolicy::default() };
        assert_eq!(Pattern::of(&policy).matches("billing.control", "stream"), expected);
    }

    use Effect::{Apart, Harm, Nothing, Unknown};

    fn with(keys: &[(&str, Value)]) -> LivePolicy {
        let definition = keys.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        LivePolicy { pattern: ".*".to_owned(), definition, ..LivePolicy::default() }
    }

    fn does(policy: &LivePolicy, kind: &str) -> Effect {
        let shadow = Shadow::of(policy, "policy", kind);
        match (Pattern::of(policy).matches("billing.processor.mail", kind), &shadow.harm) {
            (false, _) => Apart,
            (true, Some(_)) => Harm,
            (true, None) if shadow.unknown.is_empty() => Nothing,
            (true, None) => Unknown,
        }
    }

    #[rstest]
    #[case::harm_beside_an_unknown_key(&[("max-length", 1.into()), ("x", 1.into())], Harm, Harm)]
    #[case::a_key_that_keeps_the_others_from_applying(&[("delivery-limit", 1.into()), ("max-length", 1.into())], Harm, Apart)]
    #[case::the_same_for_quorum_queues(&[("ha-mode", "all".into()), ("max-length", 1.into())], Apart, Harm)]
    #[case::delayed_retry_off(&[("delayed-retry-type", "disabled".into()), ("delayed-retry-min", 1.into())], Nothing, Nothing)]
    #[case::delayed_retry(&[("delayed-retry-type", "all".into()), ("delayed-retry-min", 1.into())], Harm, Nothing)]
    fn a_policy_does_what_its_keys_do(#[case] keys: &[(&str, Value)], #[case] quorum: Effect, #[case] classic: Effect) {
        let policy = with(keys);
        assert_eq!((does(&policy, "quorum"), does(&policy, "classic")), (quorum, classic));
    }
}

//! Finds strangers' policies that apply to an owned queue.

use std::{collections::BTreeMap, time::Duration};

use fancy_regex::Regex;
use hatchery::internals::{
    compile::{Desired, Policy},
    names,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{PRIORITY, compare};
use crate::observed::{LivePolicy, LiveQueue, Observed};

/// Policy keys that limit a queue, expire its messages, or change how it dead-letters. Where an argument and a policy
/// both set a TTL, length or limit, the smaller one wins, and the policy's `overflow` wins on a quorum queue. So our
/// arguments do not protect a queue.
const HARMFUL: [&str; 9] = [
    "message-ttl",
    "expires",
    "max-length",
    "max-length-bytes",
    "overflow",
    "dead-letter-exchange",
    "dead-letter-routing-key",
    "dead-letter-strategy",
    "delivery-limit",
];

/// Policy keys that classic queues do not support. RabbitMQ applies a policy with one of them to no classic queue, its other keys
/// included (`unsupported_policies` in `rabbit_classic_queue:capabilities/0`, and `rabbit_policy:matches/3`; measured on 3.10).
const NOT_CLASSIC: [&str; 2] = ["dead-letter-strategy", "delivery-limit"];

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
        let is_ours = |live: &LivePolicy| desired.owners().any(|owner| live.name == names::tunables(owner));
        let is_own = |live: &LivePolicy| is_ours(live) || own.iter().any(|own| own.name == live.name);
        let strangers = observed.policies.iter().filter(|live| !is_own(live));
        let live = |live: &'a LivePolicy| (live, Pattern::of(live));
        Self {
            own: own
                .iter()
                .map(|own| (own, Pattern::new(&own.pattern, super::APPLY_TO, own.definition.keys())))
                .collect(),
            user: strangers.map(live).collect(),
            operator: observed.operator_policies.iter().map(live).collect(),
        }
    }

    /// Returns the strangers' policies that win on a queue, which may not exist yet.
    pub(super) fn on(&self, name: &str, kind: &str, live: Option<&LiveQueue>) -> Vec<Shadow<'a>> {
        let own = self.own.iter().find(|(_, pattern)| pattern.matches(name, kind)).map(|(own, _)| own);
        let said = live.and_then(|live| live.policy.as_deref());
        let user = winner(&self.user, name, kind, said).filter(|user| own.is_none() || user.priority >= PRIORITY);
        let said = live.and_then(|live| live.operator_policy.as_deref());
        let operator = winner(&self.operator, name, kind, said);
        let user = user.map(|policy| {
            let instead = own.map(|own| format!("shadowed by policy {}: {} does not apply", policy.name, own.name));
            Shadow { harm: harm(policy, "policy").or(instead), policy, kind: "policy" }
        });
        let kind = "operator policy";
        let operator = operator.map(|policy| Shadow { harm: harm(policy, kind), policy, kind });
        user.into_iter().chain(operator).collect()
    }
}

/// A stranger's policy that takes away from owned queues what their safety depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shadowing {
    /// The name of the policy.
    pub policy: String,
    /// Whether it is an operator policy.
    pub operator: bool,
    /// The keys that do harm. Empty if it only keeps the topology's own policy from applying.
    pub keys: Vec<String>,
    /// The owned queues that it applies to.
    pub queues: Vec<String>,
}

/// Returns the strangers' policies that harm queues of the file.
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
        for Shadow { policy, kind, .. } in over.iter().filter(|shadow| shadow.harm.is_some()) {
            let operator = *kind != "policy";
            let shadowing = found.entry((&policy.name, operator)).or_insert_with(|| {
                let keys = harmful(policy).map(str::to_owned).collect();
                Shadowing { policy: policy.name.clone(), operator, keys, queues: Vec::new() }
            });
            shadowing.queues.push(queue.name.clone());
        }
    }
    found.into_values().collect()
}

/// A stranger's policy that wins on a queue.
pub(super) struct Shadow<'a> {
    policy: &'a LivePolicy,
    kind: &'static str,
    /// Why the queue would not work as the file says; `None` if the policy does no harm.
    pub(super) harm: Option<String>,
}

impl Shadow<'_> {
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
        (&self.policy.name, format!("{what} on owned queues, and does no harm ({})", keys.join(", ")))
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

fn harmful(policy: &LivePolicy) -> impl Iterator<Item = &'static str> {
    HARMFUL.into_iter().filter(|key| policy.definition.contains_key(*key))
}

fn harm(policy: &LivePolicy, kind: &str) -> Option<String> {
    let keys: Vec<&str> = harmful(policy).collect();
    (!keys.is_empty()).then(|| format!("shadowed by {kind} {} ({})", policy.name, keys.join(", ")))
}

/// The queues that a policy applies to. RabbitMQ's patterns are Perl regular expressions, so look-around must work:
/// `^(?!amq\.)` is in every second tutorial.
struct Pattern {
    /// `None` if the pattern cannot be read. Then only the broker's answer about an existing queue counts.
    regex: Option<Regex>,
    /// The queue type that it applies to; `None` for all types.
    kind: Option<String>,
    queues: bool,
    /// Whether it applies to classic queues, as far as its keys tell.
    classic: bool,
}

impl Pattern {
    fn of(policy: &LivePolicy) -> Self {
        Self::new(&policy.pattern, &policy.apply_to, policy.definition.keys())
    }

    fn new<'a>(pattern: &str, apply_to: &str, mut keys: impl Iterator<Item = &'a String>) -> Self {
        let kind = apply_to.strip_suffix("_queues").map(str::to_owned);
        let queues = matches!(apply_to, "" | "all" | "queues") || kind.is_some();
        let classic = !keys.any(|key| NOT_CLASSIC.contains(&key.as_str()));
        Self { regex: Regex::new(pattern).ok(), kind, queues, classic }
    }

    fn matches(&self, queue: &str, kind: &str) -> bool {
        self.queues
            && self.kind.as_deref().is_none_or(|only| only == kind)
            && (self.classic || kind != compare::CLASSIC)
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
    #[case(&["max-length"], true)]
    #[case(&["delivery-limit"], false)]
    #[case(&["delivery-limit", "max-length"], false)]
    #[case(&["dead-letter-strategy"], false)]
    fn a_policy_with_a_key_of_quorum_queues_applies_to_no_classic_queue(#[case] keys: &[&str], #[case] expected: bool) {
        let definition = keys.iter().map(|key| ((*key).to_owned(), Value::from(1))).collect();
        let policy = LivePolicy { pattern: ".*".to_owned(), definition, ..LivePolicy::default() };
        assert!(Pattern::of(&policy).matches("billing.hatchery.5m", "quorum"));
        assert_eq!(Pattern::of(&policy).matches("billing.hatchery.5m", "classic"), expected);
    }
}

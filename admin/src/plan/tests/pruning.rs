//! Tests of pruning.

use rstest::rstest;
use serde_json::json;

use super::*;

#[rstest]
#[case::timer(Some(60_000), Some(5), None, true)]
#[case::empty(None, Some(0), Some(0), true)]
#[case::waiting(None, Some(5), Some(0), false)]
#[case::consumed(None, Some(0), Some(1), false)]
#[case::unknown_messages(None, None, Some(0), false)]
#[case::unknown_consumers(None, Some(0), None, false)]
fn a_queue_that_is_still_needed_stays_bound(
    #[case] ttl: Option<u64>,
    #[case] messages: Option<u64>,
    #[case] consumers: Option<u64>,
    #[case] goes: bool,
) {
    let mut observed = applied();
    let name = if ttl.is_some() { "billing.hatchery.1d" } else { "billing.processor.gone" };
    let ttl = ttl.map(|ttl| ("x-message-ttl", json!(ttl)));
    observed.queues.push(LiveQueue { messages, consumers, ..queue(name, Some("billing"), ttl.as_slice()) });
    observed.bindings.push(binding("billing.retry", name, "gone.#"));
    let expected: &[Step] = if goes { &[unbinding(name)] } else { &[] };
    assert_eq!(plan(&desired(), &observed).pruning, expected);
}

fn unbinding(queue: &str) -> Step {
    let target = Target::Queue(queue.into());
    Step::Unbind(Binding { source: "billing.retry".into(), target, key: "gone.#".into() })
}

/// Workers that still handle events of a leftover type need all queues of the type.
#[rstest]
#[case::an_event_waits([1, 0, 0, 0], 0, &[])]
#[case::a_failed_event_comes_back([0, 0, 1, 0], 0, &[])]
#[case::a_suspect_is_yet_to_run([0, 1, 0, 0], 0, &[])]
#[case::a_worker_is_there([0, 0, 0, 0], 1, &[])]
#[case::a_dead_letter_keeps_only_its_own_queue([0, 0, 0, 1], 0, &["processor.gone", "aside.gone", "retry.gone.1m"])]
#[case::all_is_quiet([0, 0, 0, 0], 0, &["processor.gone", "aside.gone", "retry.gone.1m", "dead-letter.gone"])]
fn the_queues_of_a_type_go_together(#[case] messages: [u64; 4], #[case] workers: u64, #[case] expected: &[&str]) {
    let mut observed = applied();
    let names =
        ["processor.gone", "aside.gone", "retry.gone.1m", "dead-letter.gone"].map(|name| format!("billing.{name}"));
    for (name, messages) in names.iter().zip(messages) {
        let ttl: &[_] = if name.contains("retry") { &[("x-message-ttl", json!(60_000))] } else { &[] };
        let consumers = if name.contains("processor") { workers } else { 0 };
        let (messages, consumers) = (Some(messages), Some(consumers));
        observed.queues.push(LiveQueue { messages, consumers, ..queue(name, Some("billing"), ttl) });
        observed.bindings.push(binding("billing.retry", name, "gone.#"));
    }
    let expected: Vec<Step> = expected.iter().map(|name| unbinding(&format!("billing.{name}"))).collect();
    assert_eq!(plan(&desired(), &observed).pruning, expected);
}

/// A binding with arguments cannot be removed, so its queue is never provably empty.
#[test]
fn the_target_of_a_binding_with_arguments_is_not_pruned() {
    let mut observed = applied();
    let timer =
        LiveQueue { messages: Some(0), consumers: Some(0), ..queue("billing.hatchery.1d", Some("billing"), &[]) };
    observed.queues.push(timer);
    let arguments = Arguments::from([("x-team".to_owned(), json!("a"))]);
    observed.bindings.push(LiveBinding { arguments, ..binding("billing.retry", "billing.hatchery.1d", "*.1d") });
    assert_eq!(plan(&desired(), &observed).pruning, []);
}

/// Workers of the former name count on its delivery limit until their queue is deleted.
#[test]
fn a_former_policy_goes_after_the_queues_that_it_applies_to() {
    let desired = Desired { former_owners: vec!["old".into()], ..desired() };
    let mut observed = applied();
    observed.policies.push(LivePolicy { name: "old.tunables".into(), ..LivePolicy::default() });
    observed.queues.push(queue("old.processor.gone", Some("old"), &[]));
    let deletion = Step::DeleteQueue { name: "old.processor.gone".into(), ttl_millis: None };
    assert_eq!(plan(&desired, &observed).pruning, [deletion]);
    observed.queues.pop();
    assert_eq!(plan(&desired, &observed).pruning, [Step::DeletePolicy("old.tunables".into())]);
}

/// The name of a leftover alone does not tell what to wait for.
#[rstest]
#[case::messages("billing.processor.gone", None, Some(2), Some(0), "holds 2 messages, for a worker or a person")]
#[case::a_timer("billing.hatchery.1d", Some(86_400_000), Some(1), Some(0), "holds 1 message, for up to 1d")]
#[case::a_worker("billing.processor.gone", None, Some(0), Some(1), "has 1 consumer")]
#[case::no_count("billing.dead-letter.gone", None, None, None, "has an unknown number of messages")]
#[case::no_consumers("billing.dead-letter.gone", None, Some(0), None, "has an unknown number of consumers")]
#[case::no_proof("billing.hatchery.1d", None, Some(0), Some(0), "not proved empty within --drain-timeout; prune again")]
fn a_leftover_queue_says_what_keeps_it(
    #[case] name: &str,
    #[case] ttl: Option<u64>,
    #[case] messages: Option<u64>,
    #[case] consumers: Option<u64>,
    #[case] why: &str,
) {
    let mut observed = applied();
    let ttl = ttl.map(|ttl| ("x-message-ttl", json!(ttl)));
    observed.queues.push(LiveQueue { messages, consumers, ..queue(name, Some("billing"), ttl.as_slice()) });
    assert_eq!(causes(&desired(), &observed), [(name.to_owned(), why.to_owned())]);
}

#[test]
fn a_leftover_that_others_keep_names_them() {
    let desired = Desired { former_owners: vec!["old".into()], ..desired() };
    let mut observed = applied();
    let empty = |name: &str| LiveQueue { messages: Some(0), consumers: Some(0), ..queue(name, Some("old"), &[]) };
    observed.queues.push(LiveQueue { messages: Some(1), ..empty("old.processor.gone") });
    observed.queues.push(empty("old.dead-letter.gone"));
    observed.queues.push(LiveQueue { state: Some("down".to_owned()), ..empty("old.hatchery.1d") });
    observed.queues.push(empty("old.hatchery.2d"));
    let arguments = Arguments::from([("x-team".to_owned(), json!("a"))]);
    observed.bindings.push(LiveBinding { arguments, ..binding("billing.retry", "old.hatchery.2d", "*.2d") });
    observed.queues.push(empty("old.hatchery.3d"));
    observed.bindings.push(binding("old.processor", "old.hatchery.3d", "*.3d"));
    observed.policies.push(LivePolicy { name: "old.tunables".into(), ..LivePolicy::default() });
    let mut dead_lettering = ("x-dead-letter-exchange", json!("old.processor"));
    observed.exchanges.push(LiveExchange {
        name: "old.processor".into(),
        arguments: Arguments::from([("x-hatchery-owner".to_owned(), json!("old"))]),
        ..observed.exchanges[0].clone()
    });
    observed.queues.push(LiveQueue {
        messages: Some(0),
        consumers: Some(0),
        ..queue("team.timer", None, std::slice::from_mut(&mut dead_lettering))
    });
    let told = |name: &str, why: &str| (name.to_owned(), why.to_owned());
    let mut causes = causes(&desired, &observed);
    causes.sort();
    assert_eq!(
        causes,
        [
            told(
                "old.dead-letter.gone",
                "its type is still in use: old.processor.gone holds 1 message, for a worker or a person"
            ),
            told("old.hatchery.1d", "its node is down"),
            told("old.hatchery.2d", "a binding from billing.retry leads to it, which apply does not own"),
            told("old.hatchery.3d", "the leftover exchange old.processor has to go first"),
            told("old.processor", "queue team.timer leads to it"),
            told("old.processor.gone", "holds 1 message, for a worker or a person"),
            told("old.tunables", "the queue old.processor.gone still uses it"),
        ]
    );
}

fn causes(desired: &Desired, observed: &Observed) -> Vec<(String, String)> {
    let kept = obstacles(desired, observed, &plan(desired, observed));
    kept.into_iter().map(|(address, why)| (address.name, why)).collect()
}

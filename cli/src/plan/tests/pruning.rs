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

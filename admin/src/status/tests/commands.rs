//! The command that a finding gives.

use hatchery::Trouble;
use rstest::rstest;
use serde_json::{Value, json};

use super::{
    World,
    finding::{overdue, refusing, wedged},
    holder,
};
use crate::{figures::Consumer, status::finding::Finding};

#[rstest]
#[case(Trouble::OutOfMemory, "is out of memory: OOM command not allowed", "memory")]
#[case(Trouble::ReadOnly, "is read-only: READONLY You can't write against a read only replica", "replication")]
#[case(Trouble::ReadOnly, "is read-only: MISCONF Redis is configured to save RDB snapshots", "persistence")]
fn redis_is_asked_for_what_keeps_it_from_writing(#[case] trouble: Trouble, #[case] why: &str, #[case] section: &str) {
    let mut world = World::new();
    refusing(&mut world, trouble, why);
    assert_eq!(world.findings()[0].command(), format!("redis-cli -u \"$REDIS_URL\" info {section}"));
}

#[test]
fn a_handler_of_a_type_without_the_register_has_a_command_that_works() {
    let mut world = World::new();
    let away = |queue: &str| Consumer {
        queue: queue.to_owned(),
        unavailable: Some("refused".to_owned()),
        ..Consumer::default()
    };
    world.seen.consumers = vec![away("billing.processor.log")];
    let command = world.findings()[0].command();
    assert_eq!(command, "rabbitmqctl list_consumers -p / queue_name channel_pid arguments");
    // `topology events list` has the events of one of the types.
    world.seen.consumers.push(away("billing.processor.mail"));
    assert_eq!(world.findings()[0].command(), "topology events list --type mail --due-before now");
}

#[rstest]
#[case("", "topology events list --type mail --due-before now")]
#[case(", register: off", "rabbitmqctl list_consumers -p / queue_name channel_pid arguments")]
fn a_type_that_keeps_its_order_blocks_at_its_oldest_event(#[case] settings: &str, #[case] command: &str) {
    let file = format!("version: 1\nname: billing\ntypes: {{ mail: {{ on-failure: block{settings} }} }}\n");
    let mut world = World::of(&file);
    world.seen.channels = Some(vec![holder(&["billing.processor.mail"], 10, 90)]);
    overdue(&mut world);
    let findings = world.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    let expected = "mail blocks at the oldest event: its worker (reports @ worker-7) has acknowledged none of 10 deliveries for \
                    1m 30s; the event fails again and again, or the worker is frozen, and the worker's log says which";
    assert_eq!((findings[0].words().as_str(), findings[0].command().as_str()), (expected, command));
}

/// A policy of a stranger on these queues, with these keys, beside one that limits nothing.
fn limited(pattern: &str, definition: Value) -> World {
    let mut world = World::new();
    world.policy("short", pattern, "overflow");
    let policy = world.objects().policies.last_mut().expect("a policy");
    policy.priority = 200;
    policy.definition = serde_json::from_value(definition).expect("an object");
    world.policy("ha", "^billing\\.hatchery", "message-ttl");
    world
}

fn commands(world: &World) -> Vec<String> {
    world.findings().iter().map(Finding::command).collect()
}

fn clear(policy: &str) -> String {
    format!("rabbitmqctl clear_policy -p / {policy}")
}

const PROCESSORS: &str = "^billing\\.processor\\.";

#[test]
fn a_policy_that_wedges_timers_is_cleared_last() {
    let limited = |limit: u64| limited(PROCESSORS, json!({ "max-length": limit, "overflow": "reject-publish" }));
    assert_eq!(commands(&limited(3)), [clear("ha"), clear("short")]);

    let mut world = limited(3);
    wedged(&mut world);
    let raise = "rabbitmqctl set_policy -p / --priority 200 --apply-to queues short '^billing\\.processor\\.' \
                 '{\"max-length\":1000000,\"overflow\":\"reject-publish\"}'";
    assert_eq!(commands(&world), [raise, &clear("ha"), "topology plan"]);

    // Raised, and the timer has not noticed yet.
    let mut world = limited(1_000_000);
    wedged(&mut world);
    assert_eq!(commands(&world), ["topology status --watch", &clear("ha"), "topology plan"]);
    let words = world.findings()[0].words();
    assert!(
        words.ends_with("clear it once nothing is wedged, at the latest ten minutes after it was raised"),
        "{words}"
    );
}

#[rstest]
#[case::only_the_low_limit(
    json!({ "max-length": 5_000_000, "max-length-bytes": 10 }), 0,
    r#"'{"max-length":5000000,"max-length-bytes":1000000000000}'"#
)]
#[case::a_raised_limit_that_a_queue_has_reached(json!({ "max-length": 1_000_000 }), 1_000_000, r#"'{"max-length":10000000}'"#)]
fn a_limit_is_raised_above_what_the_queues_hold_and_never_lowered(
    #[case] definition: Value,
    #[case] held: u64,
    #[case] raised: &str,
) {
    let mut world = limited(PROCESSORS, definition);
    wedged(&mut world);
    world.work("billing.processor.mail");
    world.fill("billing.processor.mail", held);
    let command = commands(&world).remove(0);
    assert!(command.starts_with("rabbitmqctl set_policy ") && command.ends_with(raised), "{command}");
}

#[test]
fn a_policy_on_queues_that_no_wedged_timer_delivers_into_is_cleared_at_once() {
    for limit in [3, 1_000_000] {
        let mut world = limited("^billing\\.dead-letter\\.", json!({ "max-length": limit }));
        wedged(&mut world);
        assert_eq!(commands(&world), [clear("ha"), clear("short"), "topology plan".to_owned()]);
    }
}

#[test]
fn the_command_for_queues_without_a_consumer_is_for_all_their_types() {
    let mut world = World::new();
    world.fill("billing.processor.log", 2);
    world.fill("billing.aside.log", 1);
    world.fill("billing.processor.mail", 11);
    let findings = world.findings();
    assert_eq!(findings[0].command(), "topology work --type mail,log --exec COMMAND", "{findings:?}");
}

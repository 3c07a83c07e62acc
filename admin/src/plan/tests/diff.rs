//! Tests of the changes that are written, of those that block a plan, and of objects that are left alone.

use hatchery::internals::compile::{BALANCED, LOCATOR};
use rstest::rstest;
use serde_json::json;

use super::*;

#[test]
fn an_empty_broker_gets_everything_in_order() {
    let expected = [
        "+ policy billing.tunables",
        "+ exchange billing.retry",
        "+ queue billing.retry.mail.1m",
        "+ queue billing.processor.mail",
        "+ binding billing.retry -> billing.retry.mail.1m (mail.1m): <- queue billing.retry.mail.1m",
    ];
    assert_eq!(lines(&Observed::default()), expected);
    let plan = plan(&desired(), &Observed::default());
    assert_eq!(plan.counts(), Counts { add: 4, ..Counts::default() });
    assert!(!plan.in_sync() && !plan.is_blocked(false));
    assert_eq!(plan.to_write().count(), 5);
}

#[test]
fn an_applied_file_is_in_sync() {
    assert_eq!(lines(&applied()), Vec::<String>::new());
    assert!(plan(&desired(), &applied()).in_sync());
}

/// The keys of the former register are not found under the new prefix. Only the binding that marks the register shows
/// the change.
#[test]
fn a_changed_register_is_reported() {
    let mark = |prefix: &str| Binding {
        source: "billing.retry".into(),
        target: Target::Queue("billing.retry.mail.1m".into()),
        key: names::register_mark(prefix, "billing", 1),
    };
    let mut desired = desired();
    desired.bindings.push(mark("v2.keys"));
    let reasons = |observed: &Observed| -> Vec<_> {
        plan(&desired, observed).changes.into_iter().map(|change| (change.action.sign(), change.reason)).collect()
    };
    let told = |sign: char, why: &str| (sign, Some(why.to_owned()));
    let mut observed = applied();
    assert_eq!(reasons(&observed), [told('~', "missing, put back")]);
    observed.bindings.push(binding("billing.retry", "billing.retry.mail.1m", &mark("hatchery").key));
    let was = "prefix=hatchery name=billing shards=1";
    let left_behind = format!("the register was {was}: its keys are not read any more, as if Redis were emptied");
    let leftover = format!("leftover, marks the former register ({was})");
    assert_eq!(reasons(&observed), [told('~', &left_behind), told('-', &leftover)]);
    observed.bindings.push(binding("billing.retry", "billing.retry.mail.1m", &mark("v2.keys").key));
    assert_eq!(reasons(&observed), [told('-', &leftover)]);
}

/// A topology keeps the keys of its first name. Another topology may have that name by now.
#[rstest]
#[case::a_topology_that_was_renamed("accounts", "hatchery", "billing", 1, true)]
#[case::with_other_shards("accounts", "hatchery", "billing", 4, true)]
#[case::another_prefix("accounts", "accounts.keys", "billing", 1, false)]
#[case::a_name_of_its_own("accounts", "hatchery", "accounts", 1, false)]
#[case::its_own_former_name("invoicing", "hatchery", "billing", 1, false)]
fn a_register_of_another_topology_stands_in_the_way(
    #[case] other: &str,
    #[case] prefix: &str,
    #[case] name: &str,
    #[case] shards: u16,
    #[case] is_blocked: bool,
) {
    let mut desired = desired();
    desired.former_owners.push("invoicing".into());
    desired.bindings.push(Binding {
        source: "billing.unrouted".into(),
        target: Target::Queue("billing.unrouted".into()),
        key: names::register_mark("hatchery", "billing", 1),
    });
    let mut observed = applied();
    let unrouted = names::unrouted(other);
    observed.bindings.push(binding(&unrouted, &unrouted, &names::register_mark(prefix, name, shards)));
    let plan = plan(&desired, &observed);
    assert_eq!(plan.is_blocked(true), is_blocked, "{:?}", plan.changes);
    let blocked = plan.changes.iter().find(|change| change.action == Action::Blocked);
    let why = blocked.and_then(|change| change.reason.clone()).unwrap_or_default();
    for part in ["the topology accounts", "prefix=hatchery name=billing", "redis: { prefix: … }"] {
        assert_eq!(why.contains(part), is_blocked, "{why}");
    }
}

type Tamper = fn(&mut Observed);

#[rstest]
#[case::binding_gone(
    |o: &mut Observed| { o.bindings.pop(); },
    &["~ binding billing.retry -> billing.retry.mail.1m (mail.1m): missing, put back"],
)]
#[case::exchange_gone(
    |o: &mut Observed| { o.exchanges.clear(); o.bindings.pop(); },
    &["+ exchange billing.retry",
      "+ binding billing.retry -> billing.retry.mail.1m (mail.1m): <- exchange billing.retry"],
)]
#[case::policy_drifted(
    |o: &mut Observed| {
        o.policies[0].definition.insert("delivery-limit".into(), 20.into());
        o.policies[0].definition.insert("max-length".into(), 5.into());
        o.policies[0].priority = 0;
    },
    &["~ policy billing.tunables: priority 0 -> 100: delivery-limit 20 -> 100: max-length 5 -> none"],
)]
#[case::binding_with_arguments_is_another(
    |o: &mut Observed| { o.bindings[1].arguments.insert("x".into(), 1.into()); },
    &["~ binding billing.retry -> billing.retry.mail.1m (mail.1m): missing, put back",
      "* binding billing.retry -> billing.retry.mail.1m (mail.1m): still routes; it has arguments, so hatchery did not create it and does not remove it"],
)]
fn drift_is_put_back(#[case] tamper: Tamper, #[case] expected: &[&str]) {
    let mut observed = applied();
    tamper(&mut observed);
    assert_eq!(lines(&observed), expected);
}

#[rstest]
#[case::ttl(
    |o: &mut Observed| { o.queues[0].arguments.insert("x-message-ttl".into(), 5.into()); },
    "! queue billing.retry.mail.1m: x-message-ttl 5 -> 60000: cannot be changed in place (ready unknown, at most 5ms): needs Migrate",
)]
#[case::no_ttl(
    |o: &mut Observed| { o.queues[0].arguments.remove("x-message-ttl"); },
    "! queue billing.retry.mail.1m: x-message-ttl none -> 60000: cannot be changed in place (ready unknown): needs Migrate",
)]
#[case::bounded(
    |o: &mut Observed| { o.queues[0].arguments.insert("x-max-length".into(), 5.into()); },
    "! queue billing.retry.mail.1m: x-max-length 5 -> none: cannot be changed in place (ready unknown, at most 1m): needs Migrate",
)]
#[case::kind(
    |o: &mut Observed| { o.queues[0].kind = Some("classic".into()); },
    "! queue billing.retry.mail.1m: x-queue-type classic -> quorum: cannot be changed in place (ready unknown, at most 1m): needs Migrate",
)]
#[case::transient(
    |o: &mut Observed| { o.queues[0].durable = Some(false); },
    "! queue billing.retry.mail.1m: durable false -> true: cannot be changed in place (ready unknown, at most 1m): needs Migrate",
)]
#[case::strange_queue(
    |o: &mut Observed| { o.queues[0].arguments.remove(OWNER); },
    "! queue billing.retry.mail.1m: blocked: not owned by billing: needs Adopt",
)]
#[case::other_owner(
    |o: &mut Observed| { o.queues[0].arguments.insert(OWNER.into(), "payroll".into()); },
    "! queue billing.retry.mail.1m: blocked: owned by payroll",
)]
#[case::alternate(
    |o: &mut Observed| { o.exchanges[0].arguments.remove("alternate-exchange"); },
    "! exchange billing.retry: alternate-exchange none -> billing.unrouted: cannot be changed in place: needs Migrate",
)]
#[case::fanout(
    |o: &mut Observed| { o.exchanges[0].kind = Some("fanout".into()); },
    "! exchange billing.retry: type fanout -> topic: cannot be changed in place: needs Migrate",
)]
#[case::internal(
    |o: &mut Observed| { o.exchanges[0].internal = Some(true); },
    "! exchange billing.retry: internal true -> false: cannot be changed in place: needs Migrate",
)]
#[case::stranger_bounds_a_hatchery(
    |o: &mut Observed| { o.policies.push(stranger("^(?!amq).*1m$", 0, &[("max-length", 5), ("expires", 9), ("x", 1)])); },
    "! queue billing.retry.mail.1m: shadowed by policy house (expires, max-length)",
)]
#[case::a_pattern_that_only_the_broker_can_read(
    |o: &mut Observed| {
        o.policies.push(stranger("(", 0, &[("message-ttl", 5)]));
        o.queues[0].policy = Some("house".into());
    },
    "! queue billing.retry.mail.1m: shadowed by policy house (message-ttl)",
)]
#[case::stranger_above_ours(
    |o: &mut Observed| { o.policies.push(stranger("processor", 100, &[("x", 1)])); },
    "! queue billing.processor.mail: shadowed by policy house: billing.tunables does not apply",
)]
#[case::operator(
    |o: &mut Observed| { o.operator_policies.push(stranger("processor", 0, &[("delivery-limit", 3)])); },
    "! queue billing.processor.mail: shadowed by operator policy house (delivery-limit)",
)]
fn a_blocking_difference_is_named(#[case] tamper: Tamper, #[case] expected: &str) {
    let mut observed = applied();
    tamper(&mut observed);
    assert_eq!(lines(&observed), [expected]);
    let plan = plan(&desired(), &observed);
    assert!(plan.is_blocked(false) && !plan.in_sync());
    assert_eq!(plan.to_write().count(), 0);
}

#[test]
fn an_unlabelled_queue_can_be_adopted_beside_an_exchange_of_its_name() {
    let mut observed = applied();
    observed.queues[0].arguments.remove(OWNER);
    let mut exchange = LiveExchange { name: observed.queues[0].name.clone(), ..observed.exchanges[0].clone() };
    exchange.arguments.insert(OWNER.into(), "payroll".into());
    observed.exchanges.push(exchange);
    let expected = [
        "! queue billing.retry.mail.1m: blocked: not owned by billing: needs Adopt",
        "? exchange billing.retry.mail.1m: not owned, ignored",
    ];
    assert_eq!(lines(&observed), expected);
}

#[rstest]
#[case::below_ours(|o: &mut Observed| o.policies.push(stranger("processor", 99, &[("max-length", 1)])))]
#[case::on_something_else(|o: &mut Observed| o.policies.push(stranger("^legacy", 0, &[("max-length", 1)])))]
#[case::wide_numbers(|o: &mut Observed| { o.queues[0].arguments.insert("x-message-ttl".into(), json!(60_000.0)); })]
#[case::unknown_flags(|o: &mut Observed| {
    (o.queues[0].durable, o.queues[0].kind, o.exchanges[0].internal) = (None, None, None);
})]
#[case::foreign_arguments(|o: &mut Observed| { o.queues[0].arguments.insert("x-team".into(), "a".into()); })]
fn a_harmless_difference_is_ignored(#[case] tamper: Tamper) {
    let mut observed = applied();
    tamper(&mut observed);
    assert_eq!(lines(&observed), Vec::<String>::new());
}

#[test]
fn a_harmless_policy_of_a_stranger_is_reported_once() {
    let mut observed = applied();
    // A policy of lower priority does not apply.
    observed.policies.push(LivePolicy { name: "below".into(), ..stranger("retry", 0, &[("max-length", 1)]) });
    observed.policies.push(stranger("retry|processor", 1, &[("queue-leader-locator", 1)]));
    observed.operator_policies.push(LivePolicy { name: "ops".into(), ..stranger(".*", 0, &[("x", 1)]) });
    let expected = [
        "* policy house: wins on owned queues, and does no harm (queue-leader-locator)",
        "* policy ops: is an operator's, and wins on owned queues, and may do harm: nothing is known of x",
    ];
    assert_eq!(lines(&observed), expected);
    assert!(plan(&desired(), &observed).in_sync());
}

#[test]
fn a_broker_that_waits_less_long_for_acknowledgements_is_reported() {
    let mut observed = applied();
    observed.operator_policies.push(stranger("processor|retry", 0, &[("consumer-timeout", 60_000)]));
    let told = |by: &str| {
        [format!(
            "* queue billing.processor.mail: RabbitMQ waits 1m for an acknowledgement, by {by}; ack-timeout is 30m"
        )]
    };
    assert_eq!(lines(&observed), told("operator policy house"));
    assert!(plan(&desired(), &observed).in_sync());

    let mut observed = applied();
    observed.queues[1].arguments.insert("x-consumer-timeout".into(), json!(60_000));
    assert_eq!(lines(&observed), told("its argument"));
    observed.queues[1].arguments.insert("x-consumer-timeout".into(), json!(30 * 60_000));
    assert_eq!(lines(&observed), Vec::<String>::new());
}

#[test]
fn a_strangers_policy_that_does_harm_to_one_queue_is_not_called_harmless() {
    let mut observed = applied();
    observed.policies.push(stranger(".*", 100, &[("queue-leader-locator", 1)]));
    let expected = "! queue billing.processor.mail: shadowed by policy house: billing.tunables does not apply";
    assert_eq!(lines(&observed), [expected]);
}

#[test]
fn a_queue_that_a_strangers_policy_would_harm_is_not_created() {
    let observed =
        Observed { policies: vec![stranger("hatchery|retry", 0, &[("message-ttl", 5)])], ..Observed::default() };
    assert!(plan(&desired(), &observed).is_blocked(true));
}

#[test]
fn leftovers_stay_and_strangers_are_ignored() {
    let mut observed = applied();
    observed.queues.push(LiveQueue {
        messages_ready: Some(412),
        ..queue("billing.hatchery.5m", Some("billing"), &[("x-message-ttl", 300_000.into())])
    });
    observed.queues.push(queue("billing.hatchery.1h", Some("billing"), &[("x-message-ttl", 3_600_000.into())]));
    observed.queues.push(queue("legacy.tmp", None, &[]));
    observed.queues.push(queue("amq.gen-1", None, &[]));
    observed.queues.push(queue("billing.lock", None, &[]));
    observed.bindings.push(binding("billing.retry", "billing.hatchery.5m", "*.5m"));
    observed.bindings.push(binding("billing.retry", "billing.retry.mail.1m", "mail.#"));
    observed.bindings.push(binding("billing.retry", "legacy.tmp", "#"));
    observed.bindings.push(binding("legacy", "legacy.tmp", "#"));
    let expected = [
        "- queue billing.hatchery.5m: leftover, still bound (412 ready, at most 5m): needs Prune",
        "- queue billing.hatchery.1h: leftover (ready unknown, at most 1h): needs Prune",
        "- binding billing.retry -> billing.hatchery.5m (*.5m): leftover, still routes: needs Prune: <- queue billing.hatchery.5m",
        "- binding billing.retry -> billing.retry.mail.1m (mail.#): leftover, still routes: needs Prune",
        "? queue legacy.tmp: not owned, ignored",
        "? binding billing.retry -> legacy.tmp (#): not owned, ignored",
    ];
    assert_eq!(lines(&observed), expected);
    let plan = plan(&desired(), &observed);
    assert!(plan.in_sync());
    assert_eq!(plan.counts(), Counts { leftover: 3, ignored: 2, ..Counts::default() });
}

#[test]
fn the_binding_past_a_new_ladder_comes_with_the_ladder() {
    let mut desired = desired();
    let mut observed = applied();
    for name in ["billing.scheduler", "billing.processor"] {
        let arguments = [(OWNER.to_owned(), Argument::Text("billing".into()))];
        desired.exchanges.push(Exchange { name: name.into(), arguments: arguments.into() });
        let arguments = [(OWNER.to_owned(), json!("billing"))].into();
        observed.exchanges.push(LiveExchange { name: name.into(), arguments, ..LiveExchange::default() });
    }
    desired.queues.push(Queue { name: "billing.ladder.1s-1.00-1s".into(), ..desired.queues[1].clone() });
    desired.bindings.push(Binding {
        source: "billing.scheduler".into(),
        target: Target::Exchange("billing.processor".into()),
        key: "*.1s-1.0".into(),
    });
    let plan = plan(&desired, &observed);
    assert_eq!(plan.counts(), Counts { add: 1, ..Counts::default() });
    assert_eq!(plan.changes[1].part_of, Some(Address::new(Kind::Queue, "billing.ladder.1s-1.00-1s")));
}

/// RabbitMQ 3.10 hides the bindings of a classic queue while the queue's node is down, and 4.3 does not.
#[test]
fn bindings_of_a_queue_whose_node_is_down_are_not_missing() {
    let mut observed = applied();
    observed.queues[0].state = Some("down".into());
    assert_eq!(lines(&observed), Vec::<String>::new());
    assert!(plan(&desired(), &observed).in_sync());
    observed.bindings.clear();
    let why = "its node is down, and RabbitMQ does not show its bindings";
    assert_eq!(lines(&observed), [format!("! queue billing.retry.mail.1m: blocked: {why}")]);
    let plan = plan(&desired(), &observed);
    assert!(plan.is_blocked(true) && plan.to_write().next().is_none());
}

#[test]
fn a_queue_whose_node_is_down_is_not_migrated() {
    let mut observed = applied();
    observed.queues[0].arguments.insert("x-expires".into(), 5.into());
    assert!(!plan(&desired(), &observed).is_blocked(true));
    observed.queues[0].state = Some("down".into());
    let plan = plan(&desired(), &observed);
    assert!(plan.is_blocked(true) && plan.migration.is_empty());
    assert_eq!(plan.changes[0].reason.as_deref(), Some("blocked: its node is down"));
}

/// The leader's node is chosen when a queue is declared, so the argument of an existing queue does not matter.
#[test]
fn a_queue_with_another_leader_locator_is_as_the_file_says() {
    let mut desired = desired();
    desired.queues[0].arguments.insert(LOCATOR.to_owned(), Argument::Text(BALANCED.to_owned()));
    assert!(plan(&desired, &applied()).in_sync());
    let mut observed = applied();
    observed.queues[0].arguments.insert(LOCATOR.to_owned(), "client-local".into());
    assert!(plan(&desired, &observed).in_sync());
}

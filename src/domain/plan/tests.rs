use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use super::{
    super::{
        compile::{Argument, Binding, Desired, Exchange, OWNER, Policy, Queue, Rename, Target},
        delay::Ladder,
        observed::{Arguments, LiveBinding, LiveExchange, LivePolicy, LiveQueue, Observed},
    },
    *,
};

/// Exchange `billing.retry`, queue `billing.retry.mail.1m` with a TTL, one binding, one policy on `billing.processor.*`.
fn desired() -> Desired {
    let text = |text: &str| Argument::Text(text.to_owned());
    let arguments = |more: &[(&str, Argument)]| {
        more.iter().cloned().chain([(OWNER, text("billing"))]).map(|(name, value)| (name.to_owned(), value)).collect()
    };
    Desired {
        owner: "billing".into(),
        exchanges: vec![Exchange {
            name: "billing.retry".into(),
            arguments: arguments(&[("alternate-exchange", text("billing.unrouted"))]),
        }],
        queues: vec![
            Queue {
                name: "billing.retry.mail.1m".into(),
                arguments: arguments(&[
                    ("x-queue-type", text("quorum")),
                    ("x-message-ttl", Argument::Number(60_000)),
                    ("x-overflow", text("reject-publish")),
                ]),
            },
            Queue { name: "billing.processor.mail".into(), arguments: arguments(&[("x-queue-type", text("quorum"))]) },
        ],
        bindings: vec![Binding {
            source: "billing.retry".into(),
            target: Target::Queue("billing.retry.mail.1m".into()),
            key: "mail.1m".into(),
        }],
        policies: vec![Policy {
            name: "billing.tunables".into(),
            pattern: "^billing\\.processor\\.".into(),
            definition: [("delivery-limit".to_owned(), Argument::Number(100))].into(),
        }],
        ack_timeout: Duration::from_mins(30),
        ladder: Ladder::new("1s".parse().expect("a TTL"), "1m".parse().expect("a TTL")).expect("a ladder"),
        former_owners: Vec::new(),
        adopted: [].into(),
        renames: Vec::new(),
    }
}

/// The broker after `apply`.
fn applied() -> Observed {
    let desired = desired();
    let live = |arguments: &std::collections::BTreeMap<String, Argument>| -> Arguments {
        arguments.iter().map(|(name, value)| (name.clone(), value.into())).collect()
    };
    Observed {
        at: None,
        version: Some("4.3.6".into()),
        exchanges: vec![LiveExchange {
            name: "billing.retry".into(),
            kind: Some("topic".into()),
            durable: Some(true),
            auto_delete: Some(false),
            internal: Some(false),
            arguments: live(&desired.exchanges[0].arguments),
        }],
        queues: desired
            .queues
            .iter()
            .map(|queue| LiveQueue {
                name: queue.name.clone(),
                kind: Some("quorum".into()),
                durable: Some(true),
                auto_delete: Some(false),
                arguments: live(&queue.arguments),
                ..LiveQueue::default()
            })
            .collect(),
        bindings: vec![
            binding("", "billing.retry.mail.1m", "billing.retry.mail.1m"),
            binding("billing.retry", "billing.retry.mail.1m", "mail.1m"),
        ],
        policies: vec![LivePolicy {
            name: "billing.tunables".into(),
            pattern: "^billing\\.processor\\.".into(),
            apply_to: APPLY_TO.into(),
            priority: PRIORITY,
            definition: live(&desired.policies[0].definition),
        }],
        operator_policies: Vec::new(),
    }
}

fn binding(source: &str, destination: &str, key: &str) -> LiveBinding {
    LiveBinding {
        source: source.into(),
        destination: destination.into(),
        destination_type: "queue".into(),
        routing_key: key.into(),
        arguments: Arguments::new(),
    }
}

fn queue(name: &str, owner: Option<&str>, more: &[(&str, serde_json::Value)]) -> LiveQueue {
    let owner = owner.map(|owner| (OWNER.to_owned(), owner.into()));
    let more = more.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    LiveQueue { name: name.into(), arguments: more.chain(owner).collect(), ..LiveQueue::default() }
}

fn stranger(pattern: &str, priority: i64, definition: &[(&str, i64)]) -> LivePolicy {
    let definition = definition.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    LivePolicy { name: "house".into(), pattern: pattern.into(), apply_to: "all".into(), priority, definition }
}

/// A line for each change: `sign address: differences: reason: <- whole`.
fn lines(observed: &Observed) -> Vec<String> {
    let line = |change: &Change| {
        let head = format!("{} {}", change.action.sign(), change.address);
        let differences = change.differences.iter().map(ToString::to_string);
        let held = change.held.map(|held| format!("({held})"));
        let about = [change.reason.clone(), held].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let needs = change.needs.map(|needs| format!("needs {needs:?}"));
        let whole = change.part_of.iter().map(|whole| format!("<- {whole}"));
        let about = (!about.is_empty()).then_some(about).into_iter().chain(needs);
        [head].into_iter().chain(differences).chain(about).chain(whole).collect::<Vec<_>>().join(": ")
    };
    plan(&desired(), observed).changes.iter().map(line).collect()
}

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
fn what_was_applied_is_in_sync() {
    assert_eq!(lines(&applied()), Vec::<String>::new());
    assert!(plan(&desired(), &applied()).in_sync());
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
      "- binding billing.retry -> billing.retry.mail.1m (mail.1m): leftover, still routes: needs Prune"],
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
    "! exchange billing.retry: alternate-exchange none -> billing.unrouted: blocked: no exchange can be replaced while others publish to it",
)]
#[case::fanout(
    |o: &mut Observed| { o.exchanges[0].kind = Some("fanout".into()); },
    "! exchange billing.retry: type fanout -> topic: blocked: no exchange can be replaced while others publish to it",
)]
#[case::internal(
    |o: &mut Observed| { o.exchanges[0].internal = Some(true); },
    "! exchange billing.retry: internal true -> false: blocked: no exchange can be replaced while others publish to it",
)]
#[case::stranger_bounds_a_hatchery(
    |o: &mut Observed| { o.policies.push(stranger("^(?!amq).*1m$", 0, &[("max-length", 5), ("expires", 9), ("x", 1)])); },
    "! queue billing.retry.mail.1m: shadowed by policy house (expires, max-length)",
)]
#[case::stranger_whose_pattern_only_the_broker_can_read(
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
fn what_stands_in_the_way_is_named(#[case] tamper: Tamper, #[case] expected: &str) {
    let mut observed = applied();
    tamper(&mut observed);
    assert_eq!(lines(&observed), [expected]);
    let plan = plan(&desired(), &observed);
    assert!(plan.is_blocked(false) && !plan.in_sync());
    assert_eq!(plan.to_write().count(), 0);
}

#[rstest]
#[case::below_ours(|o: &mut Observed| o.policies.push(stranger("processor", 99, &[("max-length", 1)])))]
#[case::on_something_else(|o: &mut Observed| o.policies.push(stranger("^legacy", 0, &[("max-length", 1)])))]
#[case::wide_numbers(|o: &mut Observed| { o.queues[0].arguments.insert("x-message-ttl".into(), json!(60_000.0)); })]
#[case::unknown_flags(|o: &mut Observed| {
    (o.queues[0].durable, o.queues[0].kind, o.exchanges[0].internal) = (None, None, None);
})]
#[case::foreign_arguments(|o: &mut Observed| { o.queues[0].arguments.insert("x-team".into(), "a".into()); })]
fn what_does_no_harm_is_no_difference(#[case] tamper: Tamper) {
    let mut observed = applied();
    tamper(&mut observed);
    assert_eq!(lines(&observed), Vec::<String>::new());
}

#[test]
fn a_strangers_policy_that_does_no_harm_is_told_once() {
    let mut observed = applied();
    // What is below it does not apply.
    observed.policies.push(LivePolicy { name: "below".into(), ..stranger("retry", 0, &[("max-length", 1)]) });
    observed.policies.push(stranger("retry|processor", 1, &[("queue-leader-locator", 1)]));
    observed.operator_policies.push(LivePolicy { name: "ops".into(), ..stranger(".*", 0, &[("x", 1)]) });
    let expected = [
        "* policy house: wins on owned queues, and does no harm (queue-leader-locator)",
        "* policy ops: is an operator's, and wins on owned queues, and does no harm (x)",
    ];
    assert_eq!(lines(&observed), expected);
    assert!(plan(&desired(), &observed).in_sync());
}

#[test]
fn a_broker_that_waits_less_long_for_acknowledgements_is_told() {
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
fn a_queue_that_a_policy_waits_for_is_not_even_created() {
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

/// A killed `apply` may leave it so, and a changed file then. What is published to the exchanges that come next would be
/// dropped.
#[test]
fn unrouted_is_bound_before_its_queue_is_migrated() {
    let mut desired = desired();
    let mut observed = applied();
    let name = || "billing.unrouted".to_owned();
    desired.exchanges.push(Exchange { name: name(), arguments: [].into() });
    desired.queues.push(Queue { name: name(), arguments: desired.queues[1].arguments.clone() });
    let unrouted = Binding { source: name(), target: Target::Queue(name()), key: "#".into() };
    desired.bindings.push(unrouted.clone());
    let label = || [(OWNER.to_owned(), json!("billing"))].into();
    observed.exchanges.push(LiveExchange { name: name(), arguments: label(), ..LiveExchange::default() });
    observed.queues.push(queue("billing.unrouted", Some("billing"), &[("x-queue-type", "classic".into())]));
    let plan = plan(&desired, &observed);
    let written: Vec<_> = plan.to_write().map(|change| change.object.clone()).collect();
    assert_eq!(written, [Some(Object::Binding(unrouted))]);
    assert!(plan.is_blocked(false) && !plan.is_blocked(true));
}

/// A migration was killed, and then the file said another name. Dead letters are not handled again for that.
#[rstest]
#[case("billing.moving.billing.dead-letter.gone", "billing.dead-letter")]
#[case("billing.moving.billing.processor.gone", "billing.processor")]
#[case("old.moving.old.dead-letter.mail", "billing.dead-letter")]
#[case("old.moving.old.unrouted", "billing.unrouted")]
#[case("old.moving.old.hatchery.5m", "billing.processor")]
fn what_stands_in_for_nothing_any_more_is_emptied(#[case] stand_in: &str, #[case] through: &str) {
    let desired = Desired { former_owners: vec!["old".into()], ..desired() };
    let owner = stand_in.split_once('.').map(|(owner, _)| owner);
    let mut observed = applied();
    observed.queues.push(queue(stand_in, owner, &[]));
    let arguments = [(OWNER.to_owned(), json!(owner))].into();
    observed.exchanges.push(LiveExchange { name: stand_in.into(), arguments, ..LiveExchange::default() });
    let first = plan(&desired, &observed);
    let [Step::Move(step)] = &first.migration[..] else { panic!("{:?}", first.migration) };
    assert_eq!((step.from.as_str(), step.through.as_str(), step.then), (stand_in, through, Then::DeleteQueue));
    // Then its exchange is left over.
    observed.queues.pop();
    assert_eq!(plan(&desired, &observed).pruning, [Step::DeleteExchange(stand_in.into())]);
}

#[rstest]
#[case::timer(Some(60_000), Some(5), None, true)]
#[case::empty(None, Some(0), Some(0), true)]
#[case::waiting(None, Some(5), Some(0), false)]
#[case::consumed(None, Some(0), Some(1), false)]
#[case::unknown_messages(None, None, Some(0), false)]
#[case::unknown_consumers(None, Some(0), None, false)]
fn what_somebody_may_still_need_stays_bound(
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

/// Whoever still works on the events of a type that has left the file needs all of its queues.
#[rstest]
#[case::an_event_waits([1, 0, 0], 0, &[])]
#[case::a_failed_event_comes_back([0, 1, 0], 0, &[])]
#[case::a_worker_is_there([0, 0, 0], 1, &[])]
#[case::a_dead_letter_is_in_nobodys_way([0, 0, 1], 0, &["processor.gone", "retry.gone.1m"])]
#[case::all_is_quiet([0, 0, 0], 0, &["processor.gone", "retry.gone.1m", "dead-letter.gone"])]
fn the_queues_of_a_type_go_together(#[case] messages: [u64; 3], #[case] workers: u64, #[case] expected: &[&str]) {
    let mut observed = applied();
    let names = ["processor.gone", "retry.gone.1m", "dead-letter.gone"].map(|name| format!("billing.{name}"));
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

#[test]
fn a_former_names_events_are_brought_home_again() {
    let rename = Rename {
        from: "billing.processor.post".into(),
        to: "billing.processor.mail".into(),
        source: "billing.retry".into(),
        key: "post.#".into(),
    };
    let desired = Desired { renames: vec![rename.clone()], ..desired() };
    let written: Vec<_> = plan(&desired, &applied()).to_write().map(|change| change.object.clone()).collect();
    assert_eq!(written, [Some(Object::Binding(rename.binding()))]);
    // As long as the former queue has them, bringing them is its migration's.
    let mut observed = applied();
    observed.queues.push(queue(&rename.from, Some("billing"), &[]));
    observed.bindings.push(binding(&rename.source, &rename.from, &rename.key));
    assert_eq!(plan(&desired, &observed).to_write().count(), 0);
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
    desired.queues.push(Queue { name: "billing.ladder.1s-1.0".into(), ..desired.queues[1].clone() });
    desired.bindings.push(Binding {
        source: "billing.scheduler".into(),
        target: Target::Exchange("billing.processor".into()),
        key: "*.1s-1.0".into(),
    });
    let plan = plan(&desired, &observed);
    assert_eq!(plan.counts(), Counts { add: 1, ..Counts::default() });
    assert_eq!(plan.changes[1].part_of, Some(Address::new(Kind::Queue, "billing.ladder.1s-1.0")));
}

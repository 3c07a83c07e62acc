//! Tests of the steps of migrations.

use hatchery::internals::{
    compile::Rename,
    wire::{self, Incoming, Properties},
};
use jiff::Timestamp;
use rstest::rstest;
use serde_json::json;

use super::*;

/// A killed `apply` whose file was changed afterwards may leave this state. Without the binding, messages that are
/// published to the next exchanges would be dropped.
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

/// Deleting the exchange removes the bindings from it and to it, also those that the file does not ask for.
#[test]
fn an_exchange_is_replaced_with_all_its_bindings() {
    let mut observed = applied();
    observed.exchanges[0].arguments.remove("alternate-exchange");
    let of_somebody = binding("billing.retry", "audit", "#");
    let leftover =
        LiveBinding { destination_type: "exchange".into(), ..binding("billing.gone", "billing.retry", "x.#") };
    observed.bindings.extend([of_somebody.clone(), leftover.clone()]);
    let plan = plan(&desired(), &observed);
    assert!(plan.is_blocked(false) && !plan.is_blocked(true));
    let [Step::Replace { exchange, bindings }] = &plan.migration[..] else { panic!("{:?}", plan.migration) };
    assert_eq!(exchange, &desired().exchanges[0]);
    let file = desired().bindings.into_iter().filter(|binding| binding.source == "billing.retry");
    let expected: Vec<Binding> = file.chain([&of_somebody, &leftover].map(super::super::view::any)).collect();
    assert_eq!(*bindings, expected);
}

/// A migration was killed, and then the queue or topology got another name. Its dead letters must not be handled again.
#[rstest]
#[case("billing.moving.billing.dead-letter.gone", "billing.dead-letter")]
#[case("billing.moving.billing.processor.gone", "billing.processor")]
#[case("old.moving.old.dead-letter.mail", "billing.dead-letter")]
#[case("old.moving.old.unrouted", "billing.unrouted")]
#[case("old.moving.old.hatchery.5m", "billing.processor")]
fn a_stand_in_for_a_removed_queue_is_emptied(#[case] stand_in: &str, #[case] through: &str) {
    let desired = Desired { former_owners: vec!["old".into()], ..desired() };
    let owner = stand_in.split_once('.').map(|(owner, _)| owner);
    let mut observed = applied();
    observed.queues.push(queue(stand_in, owner, &[]));
    let arguments = [(OWNER.to_owned(), json!(owner))].into();
    observed.exchanges.push(LiveExchange { name: stand_in.into(), arguments, ..LiveExchange::default() });
    let first = plan(&desired, &observed);
    let [Step::Move(step)] = &first.migration[..] else { panic!("{:?}", first.migration) };
    assert_eq!((step.from.as_str(), step.through.as_str(), step.then), (stand_in, through, Then::DeleteQueue));
    // Once the queue is gone, its exchange is a leftover.
    observed.queues.pop();
    assert_eq!(plan(&desired, &observed).pruning, [Step::DeleteExchange(stand_in.into())]);
}

/// A migration was killed, and then the topology got another name. Unbound alone, the stand-in would leave the exchange `unrouted` of
/// the former name without a queue.
#[test]
fn what_leads_to_the_stand_in_of_a_renamed_queue_leads_to_the_present_queue_first() {
    let (from, to, stand_in) = ("old.processor.mail", "billing.processor.mail", "old.moving.old.processor.mail");
    let (source, key) = ("old.processor".to_owned(), "mail.#".to_owned());
    let rename = Rename { from: from.into(), to: to.into(), source, key };
    let desired = Desired { former_owners: vec!["old".into()], renames: vec![rename.clone()], ..desired() };
    let mut observed = applied();
    observed.queues.push(queue(stand_in, Some("old"), &[]));
    observed.bindings.extend([binding(&rename.source, stand_in, &rename.key), binding(stand_in, stand_in, "#")]);
    let unbind = |n: usize| Step::Unbind(super::super::view::any(&observed.bindings[observed.bindings.len() - n]));
    let expected = [Step::Create(Object::Binding(rename.binding())), unbind(2), unbind(1)];
    assert_eq!(plan(&desired, &observed).migration, expected);
}

#[test]
fn events_with_a_former_type_name_go_to_the_present_queue() {
    let rename = Rename {
        from: "billing.processor.post".into(),
        to: "billing.processor.mail".into(),
        source: "billing.retry".into(),
        key: "post.#".into(),
    };
    let desired = Desired { renames: vec![rename.clone()], ..desired() };
    let written: Vec<_> = plan(&desired, &applied()).to_write().map(|change| change.object.clone()).collect();
    assert_eq!(written, [Some(Object::Binding(rename.binding()))]);
    // As long as the binding leads to the former queue, the migration of that queue moves it.
    let mut observed = applied();
    observed.queues.push(queue(&rename.from, Some("billing"), &[]));
    observed.bindings.push(binding(&rename.source, &rename.from, &rename.key));
    assert_eq!(plan(&desired, &observed).to_write().count(), 0);
}

/// A stand-in has no dead-letter exchange, so messages that a policy removes from it are lost.
#[test]
fn a_migration_by_way_of_a_queue_that_loses_events_is_blocked() {
    let mut observed = applied();
    observed.queues[1].kind = Some("classic".into());
    let house = stranger("moving", 0, &[("message-ttl", 1000)]);
    observed.policies.push(LivePolicy { apply_to: "quorum_queues".into(), ..house });
    let first = plan(&desired(), &observed);
    assert!(first.is_blocked(true) && first.migration.is_empty(), "{first:?}");
    let expected =
        "blocked: its stand-in billing.moving.billing.processor.mail would be shadowed by policy house (message-ttl)";
    assert_eq!(first.changes[0].reason.as_deref(), Some(expected));
    // Messages that are in the stand-in already are moved back.
    observed.queues[1].kind = Some("quorum".into());
    observed.queues.push(queue("billing.moving.billing.processor.mail", Some("billing"), &[]));
    assert!(!plan(&desired(), &observed).is_blocked(true));
}

#[rstest]
#[case::there(false)]
#[case::back(true)]
fn a_binding_with_arguments_blocks_a_migration(#[case] is_back: bool) {
    let mut observed = applied();
    let stand_in = "billing.moving.billing.processor.mail";
    let target = if is_back {
        observed.queues.push(queue(stand_in, Some("billing"), &[]));
        stand_in
    } else {
        observed.queues[1].kind = Some("classic".into());
        "billing.processor.mail"
    };
    let arguments = Arguments::from([("x-team".to_owned(), json!("a"))]);
    observed.bindings.push(LiveBinding { arguments, ..binding("billing.retry", target, "mail.#") });
    let plan = plan(&desired(), &observed);
    assert!(plan.is_blocked(true) && plan.migration.is_empty(), "{plan:?}");
    let reason = format!("blocked: the binding billing.retry -> {target} (mail.#) has arguments; remove it first");
    assert!(plan.changes.iter().any(|change| change.reason.as_ref() == Some(&reason)), "{plan:?}");
}

/// In a hatchery an event would wait the whole TTL again, so an event with a date takes the ladder for the remaining
/// wait. An event in a retry queue waits for no date, and a processing queue is no timer.
#[rstest]
#[case::hatchery(
    "billing.hatchery.5m",
    "billing.scheduler",
    Some(300_000),
    "billing.scheduler",
    "mail.1s-6.1.1.1.0.0.0"
)]
#[case::retry(
    "billing.retry.mail.5m",
    "billing.retry",
    Some(300_000),
    "billing.moving.billing.retry.mail.5m",
    "mail.5m"
)]
#[case::processing(
    "billing.processor.post",
    "billing.processor",
    None,
    "billing.moving.billing.processor.post",
    "mail.5m"
)]
fn an_event_moved_back_into_a_hatchery_waits_only_for_the_rest(
    #[case] name: &str,
    #[case] source: &str,
    #[case] ttl: Option<i64>,
    #[case] exchange: &str,
    #[case] key: &str,
) {
    let (mut desired, mut observed) = (desired(), applied());
    let label = Arguments::from([(OWNER.to_owned(), json!("billing"))]);
    let ttl = ttl.map(|ttl| ("x-message-ttl".to_owned(), Argument::Number(ttl)));
    desired.queues.push(Queue { name: name.into(), arguments: ttl.clone().into_iter().collect() });
    let target = Target::Queue(name.into());
    desired.bindings.push(Binding { source: source.into(), target, key: "*.5m".into() });
    let stand_in = format!("billing.moving.{name}");
    let ttl = ttl.as_ref().map(|(name, value)| (name.as_str(), value.into()));
    observed.queues.extend([queue(name, Some("billing"), ttl.as_slice()), queue(&stand_in, Some("billing"), &[])]);
    observed.exchanges.push(LiveExchange { name: stand_in.clone(), arguments: label, ..LiveExchange::default() });
    observed.bindings.extend([binding(source, name, "*.5m"), binding(&stand_in, name, "#")]);
    let plan = plan(&desired, &observed);
    let [Step::Move(step)] = &plan.migration[..] else { panic!("{:?}", plan.migration) };
    assert_eq!((&step.from, &step.through, step.then), (&stand_in, &stand_in, Then::DeleteQueue));

    let headers = [("nbf".to_owned(), wire::Value::text("1970-01-01T00:00:07Z"))].into();
    let properties = Properties { headers, ..Properties::default() };
    let incoming = Incoming { routing_key: "mail.5m".into(), properties, body: Vec::new().into() };
    let sent = step.forward(incoming, Timestamp::UNIX_EPOCH);
    assert_eq!((sent.exchange.as_str(), sent.routing_key.as_str()), (exchange, key));
}

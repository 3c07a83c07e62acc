//! What is moved, from one step to the next.

use rstest::rstest;
use serde_json::json;

use super::{super::super::compile::Rename, *};

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

#[rstest]
#[case::there(false)]
#[case::back(true)]
fn a_migration_that_a_binding_with_arguments_leads_to_is_blocked(#[case] is_back: bool) {
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

//! Tests of plans for the stream with the switches.

use hatchery::internals::compile::compile;
use rstest::rstest;
use serde_json::json;

use super::*;

const CONTROL: &str = "billing.control";

fn desired() -> Desired {
    let text = "version: 1\nname: billing\nladder: { resolution: 1s, horizon: 1s }\ntypes: { mail: {} }\n";
    compile(&hatchery::file::read(text, "topology.yaml").expect("a valid file")).expect("safe")
}

fn stream(observed: &mut Observed) -> &mut LiveQueue {
    observed.queues.iter_mut().find(|live| live.name == CONTROL).expect("the stream")
}

/// Returns the changes of the stream.
fn changes(observed: &Observed) -> Vec<(Action, String)> {
    let changes = plan(&desired(), observed).changes.into_iter();
    let of_stream = changes.filter(|change| change.address == Address::new(Kind::Queue, CONTROL));
    of_stream.map(|change| (change.action, change.reason.unwrap_or_default())).collect()
}

#[test]
fn a_stream_with_its_messages_is_as_the_file_says() {
    let mut observed = Observed::from(&desired());
    stream(&mut observed).messages = Some(9);
    assert!(plan(&desired(), &observed).changes.is_empty());
}

#[rstest]
#[case::bounded(|live: &mut LiveQueue| drop(live.arguments.insert("x-max-age".into(), json!("7D"))))]
#[case::bounded_by_bytes(|live: &mut LiveQueue| drop(live.arguments.insert("x-max-length-bytes".into(), json!(5))))]
#[case::of_another_type(|live: &mut LiveQueue| live.kind = Some("quorum".into()))]
fn a_stream_is_never_migrated(#[case] tamper: fn(&mut LiveQueue)) {
    let mut observed = Observed::from(&desired());
    tamper(stream(&mut observed));
    let planned = plan(&desired(), &observed);
    assert!(planned.is_blocked(true) && planned.migration.is_empty());
    let why = "blocked: a stream is not migrated; delete it and run `topology apply`, which forgets its pauses";
    assert_eq!(changes(&observed), [(Action::Blocked, why.to_owned())]);
    assert_eq!(wrong_objects(&desired(), &observed).len(), 1);
}

#[rstest]
#[case::age(&[("max-age", 5)], Some("max-age"))]
#[case::bytes(&[("max-length-bytes", 5)], Some("max-length-bytes"))]
#[case::what_no_stream_supports(&[("max-length", 5), ("max-age", 5)], None)]
fn a_policy_that_limits_the_stream_is_a_warning(#[case] keys: &[(&str, i64)], #[case] expected: Option<&str>) {
    let mut observed = Observed::from(&desired());
    observed.policies.push(stranger("control", 0, keys));
    let warning = |keys| {
        format!("shadowed by policy house ({keys}): if it takes the last message away, no worker starts an event")
    };
    let expected: Vec<_> = expected.map(|keys| (Action::Shadowing, warning(keys))).into_iter().collect();
    assert_eq!(changes(&observed), expected);
    assert!(plan(&desired(), &observed).in_sync());
    assert_eq!(shadowing(&desired(), &observed).len(), expected.len());
}

/// The broker counts a reader for some seconds after its worker has ended.
#[rstest]
#[case::read(Some(1))]
#[case::unknown(None)]
#[case::read_by_nobody(Some(0))]
fn the_stream_of_a_former_name_goes_with_its_exchange(#[case] consumers: Option<u64>) {
    let renamed = Desired { former_owners: vec!["old".to_owned()], ..desired() };
    let mut observed = Observed::from(&renamed);
    let arguments = [("x-queue-type", json!("stream"))];
    let former = LiveQueue { messages: Some(3), consumers, ..queue("old.control", Some("old"), &arguments) };
    observed.queues.push(former);
    observed.queues.push(queue("old.control.lock", None, &[]));
    let planned = plan(&renamed, &observed);
    assert_eq!(planned.pruning, [Step::DeleteStream("old.control".to_owned())]);
    let names: Vec<&str> = planned.changes.iter().map(|change| change.address.name.as_str()).collect();
    assert_eq!(names, ["old.control"], "the lock is nobody's");
}

#[test]
fn a_stream_keeps_no_topology_from_being_destroyed() {
    let mut observed = Observed::from(&desired());
    let live = stream(&mut observed);
    (live.messages, live.consumers) = (Some(3), Some(1));
    let found = destruction(&desired(), &observed, false);
    assert!(!found.plan.is_blocked(true));
    assert!(found.rest.contains(&Step::DeleteStream(CONTROL.to_owned())));
}

const LIFE: &str = "billing.life-cycle";

/// Returns the changes of what has the name of the stream of the life of events.
fn of_life(file: &Desired, observed: &Observed) -> Vec<(Kind, Action, String)> {
    let changes = plan(file, observed).changes.into_iter().filter(|change| change.address.name == LIFE);
    changes.map(|change| (change.address.kind, change.action, change.reason.unwrap_or_default())).collect()
}

#[test]
fn a_stream_of_the_life_of_events_that_differs_is_not_migrated() {
    let mut observed = Observed::from(&desired());
    let live = observed.queues.iter_mut().find(|live| live.name == LIFE).expect("the stream");
    live.arguments.insert("x-max-age".into(), json!("1D"));
    let why = "blocked: a stream is not migrated; delete it and run `topology apply`, which forgets what it was told";
    assert_eq!(of_life(&desired(), &observed), [(Kind::Queue, Action::Blocked, why.to_owned())]);
}

#[rstest]
#[case::of_lower_priority(0, None)]
#[case::of_higher_priority(200, Some("shadowed by policy house (max-age): the stream keeps what that policy says"))]
fn a_policy_in_place_of_ours_on_the_life_of_events_is_a_warning(#[case] priority: i64, #[case] expected: Option<&str>) {
    let mut observed = Observed::from(&desired());
    observed.policies.push(stranger("life-cycle", priority, &[("max-age", 5)]));
    let expected: Vec<_> = expected.map(|why| (Kind::Queue, Action::Shadowing, why.to_owned())).into_iter().collect();
    assert_eq!(of_life(&desired(), &observed), expected);
    assert!(plan(&desired(), &observed).in_sync());
}

#[test]
fn the_policy_of_the_life_of_events_goes_after_its_stream() {
    let text =
        "version: 1\nname: billing\nladder: { resolution: 1s, horizon: 1s }\ntypes: { mail: {} }\nlife-cycle: off\n";
    let off = compile(&hatchery::file::read(text, "topology.yaml").expect("a valid file")).expect("safe");
    let mut observed = Observed::from(&desired());
    assert_eq!(of_life(&off, &observed).len(), 3);
    let steps = [
        Step::DeleteExchange(LIFE.to_owned()),
        Step::DeleteStream(LIFE.to_owned()),
        Step::DeletePolicy(LIFE.to_owned()),
    ];
    for step in steps {
        assert_eq!(plan(&off, &observed).pruning, [step]);
        if observed.exchanges.iter().any(|live| live.name == LIFE) {
            observed.exchanges.retain(|live| live.name != LIFE);
            observed.bindings.retain(|live| live.source != LIFE);
        } else {
            observed.queues.retain(|live| live.name != LIFE);
        }
    }
}

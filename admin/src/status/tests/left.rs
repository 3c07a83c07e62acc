//! Findings about queues of types and sources that have left the file.

use rstest::rstest;

use super::World;
use crate::status::finding::{Finding, Queue};

const FILE: &str = "\
version: 1
name: billing
types: { mail: {} }
sources: { hr: { declare: on, events: [ { type: mail } ] } }
";

fn queue(name: &str, messages: u64) -> Queue {
    Queue { queue: name.to_owned(), messages }
}

#[test]
fn events_of_a_type_that_has_left_the_file_have_no_consumer() {
    let mut world = World::of(FILE);
    world.leave("billing.processor.post", 7);
    let queues = vec![queue("billing.processor.post", 7)];
    let of = |queues, types: &[&str]| Finding::NoConsumer {
        queues,
        event_type: "post".to_owned(),
        types: types.iter().map(|name| (*name).to_owned()).collect(),
        redelivered: None,
    };
    let findings = world.findings();
    assert_eq!(findings, [of(queues.clone(), &[])]);
    // A worker would refuse the type.
    assert_eq!(findings[0].command(), "topology plan");
    world.fill("billing.processor.mail", 2);
    let both = queues.into_iter().chain([queue("billing.processor.mail", 2)]).collect();
    let findings = world.findings();
    assert_eq!(findings, [of(both, &["mail"])]);
    assert_eq!(findings[0].command(), "topology work --type mail --exec COMMAND");
}

#[test]
fn messages_of_a_source_that_has_left_the_file_have_no_consumer() {
    let mut world = World::of(FILE);
    world.leave("billing.source.till", 3);
    let queues = vec![queue("billing.source.till", 3)];
    let source = "till".to_owned();
    let findings = world.findings();
    assert_eq!(findings, [Finding::SourceNoConsumer { queues, redelivered: None, source, has_left: true }]);
    // A worker would refuse the source.
    assert_eq!(findings[0].command(), "topology plan");
}

#[rstest]
#[case::they_are_consumed("billing.processor.post", 7, 1)]
#[case::they_are_empty("billing.processor.post", 0, 0)]
#[case::a_source_is_consumed("billing.source.till", 7, 1)]
#[case::of_another_topology("shop.processor.post", 7, 0)]
#[case::a_source_of_another_topology("shop.source.till", 7, 0)]
fn queues_that_need_no_consumer_are_not_found(#[case] name: &str, #[case] messages: u64, #[case] consumers: u64) {
    let mut world = World::of(FILE);
    world.leave(name, messages);
    world.queue(name, |figures| figures.counts.consumers = Some(consumers));
    assert_eq!(world.findings(), []);
}

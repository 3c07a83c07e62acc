//! The figures of each type, and of what no list of events has.

use hatchery::internals::register::index::TypeCounts;

use super::{World, mail};
use crate::{
    figures::{Figures, Rate},
    status::observation::Redis,
};

const TIMERS: &str = "billing.hatchery.* and .ladder.*";

fn assert_unlisted(world: &World, expected: &[(&str, u64)]) {
    let unlisted = world.status().unlisted;
    let unlisted: Vec<_> = unlisted.iter().map(|place| (place.place.as_str(), place.messages)).collect();
    assert_eq!(unlisted, expected);
}

#[test]
fn a_count_that_is_not_known_is_no_finding() {
    let mut world = World::new();
    for figures in world.seen.readings[0].queues.values_mut() {
        *figures = Figures::default();
    }
    assert_eq!(world.findings(), []);
    let status = world.status();
    assert!(
        status.types.iter().all(|line| line.due.is_none() && line.workers.is_none() && line.in_rate.is_none()),
        "{status:?}"
    );
    // Seconds after an apply RabbitMQ has no figures.
    let unknown = "figures of the queues of hr-import, log, mail: RabbitMQ has told none so far";
    assert_eq!(status.unknown, [unknown]);
    // A queue that does not exist has no figures either, which is another finding.
    world.objects().queues.clear();
    assert_eq!(world.status().unknown, Vec::<String>::new());
}

#[test]
fn amqp_alone_tells_ready_messages_and_consumers() {
    let mut world = World::new();
    world.fill("billing.processor.mail", 13);
    world.fill("billing.dead-letter.mail", 9);
    for figures in world.seen.readings[0].queues.values_mut() {
        let ready = figures.counts.messages_ready;
        *figures = Figures::default();
        (figures.counts.messages_ready, figures.counts.consumers) = (ready, Some(1));
    }
    (world.seen.objects, world.seen.channels, world.seen.alarms) = (None, None, None);
    world.seen.redis = Redis::NotGiven;
    let status = world.status();
    let line = status.types.iter().find(|line| line.name == "mail").expect("it is in the file");
    assert_eq!((line.due, line.retrying, line.dead, line.workers), (Some(13), Some(0), Some(9), Some(1)));
    assert_eq!((line.delayed, line.next_due, line.in_rate, line.out_rate), (None, None, None, None));
    assert_eq!(status.leftovers, None);
    assert_eq!(
        status.unknown,
        ["delayed events, how late events are, and whether runs fail: set --redis-url (REDIS_URL)"]
    );
}

#[test]
fn a_type_has_figures_of_the_broker_and_of_the_register() {
    let mut world = World::new();
    let next_due = Some("2026-06-01T09:05:00Z".parse().expect("a time"));
    world.register().counts.insert(mail(), TypeCounts { due: 5, delayed: 12, next_due });
    world.fill("billing.retry.mail.10s", 2);
    world.queue("billing.processor.mail", |figures| {
        figures.counts.messages_ready = Some(3);
        figures.counts.messages_unacknowledged = Some(4);
        figures.counts.consumers = Some(2);
        figures.messages_details = Some(Rate { rate: -1.5 });
        figures.message_stats.as_mut().expect("some").ack_details = Some(Rate { rate: 4.0 });
    });
    let status = world.status();
    let line = status.types.iter().find(|line| line.name == "mail").expect("it is in the file");
    assert_eq!((line.due, line.delayed, line.next_due, line.retrying), (Some(7), Some(10), next_due, Some(2)));
    assert_eq!((line.in_rate, line.out_rate, line.workers), (Some(2.5), Some(4.0), Some(2)));
    let log = status.types.iter().find(|line| line.name == "log").expect("it is in the file");
    assert_eq!((log.due, log.delayed, log.next_due), (Some(0), None, None), "only the register knows what is delayed");
}

#[test]
fn messages_that_the_register_does_not_know_are_counted() {
    let mut world = World::new();
    world.register().counts.insert(mail(), TypeCounts { due: 2, delayed: 1, next_due: None });
    world.fill("billing.dead-letter.mail", 5);
    world.fill("billing.dead-letter.log", 4);
    world.fill("billing.unrouted", 3);
    world.fill("billing.hatchery.1h", 9);
    assert_unlisted(&world, &[("billing.unrouted", 3), ("log", 4), ("mail", 2), (TIMERS, 8)]);
}

#[test]
fn an_event_that_is_due_and_waits_in_a_timer_is_listed() {
    let mut world = World::new();
    world.register().counts.insert(mail(), TypeCounts { due: 3, delayed: 1, next_due: None });
    world.fill("billing.dead-letter.mail", 1);
    world.fill("billing.hatchery.1h", 3);
    assert_unlisted(&world, &[]);
    world.fill("billing.hatchery.1h", 4);
    assert_unlisted(&world, &[(TIMERS, 1)]);
}

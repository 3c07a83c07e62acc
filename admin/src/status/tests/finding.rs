//! The finding that follows from each observation.

use std::collections::BTreeMap;

use hatchery::{
    Trouble,
    internals::{
        redis::ReportedClock,
        schedule::{definition::Definition, state::ScheduleState},
        switches::{Pause, Paused},
    },
};
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::json;

use super::{World, holder, mail};
use crate::{
    figures::{Alarm, Client, Consumer, Sample},
    live::{LiveBinding, LiveExchange, LiveQueue},
    status::{
        finding::{Finding, Queue},
        observation::{Blind, OverdueEvent, Redis, Refusal},
        severity::Severity,
    },
};

fn alarmed(world: &mut World) {
    world.seen.alarms = Some(vec![Alarm { node: "rabbit@a".to_owned(), resource: "disk".to_owned() }]);
}

pub(super) fn wedged(world: &mut World) {
    for _ in 0..2 {
        world.seen.readings.push(world.seen.readings[0].clone());
    }
    for reading in &mut world.seen.readings {
        let counts = &mut reading.queues.get_mut("billing.hatchery.5m").expect("it is there").counts;
        (counts.messages, counts.messages_dlx) = (Some(41), Some(41));
    }
}

pub(super) fn overdue(world: &mut World) {
    world.seen.overdue = vec![OverdueEvent {
        event_type: mail(),
        reference: None,
        id: Some("0197c5e2".to_owned()),
        due: "2026-06-01T06:00:00Z".parse().expect("a time"),
        events: 1,
        may_be_more: false,
    }];
}

pub(super) fn refusing(world: &mut World, trouble: Trouble, why: &str) {
    world.register().refusal = Some(Refusal { trouble, why: why.to_owned() });
}

fn growing(world: &mut World) {
    world.fill("billing.dead-letter.mail", 120);
    world.fill("billing.dead-letter.log", 3);
    let samples = [Sample { sample: 118, timestamp: 600_000 }, Sample { sample: 20, timestamp: 0 }];
    world.seen.letters.insert("billing.dead-letter.mail".to_owned(), samples.to_vec());
}

/// Two workers of `mail` of which so many cannot reach their service, beside an event that waits for them.
fn unavailable(world: &mut World, workers: usize) {
    overdue(world);
    let consumer = |n| Consumer {
        queue: "billing.processor.mail".to_owned(),
        unavailable: (n < workers).then(|| "connection refused".to_owned()),
        ..Consumer::default()
    };
    world.seen.consumers = (0..2).map(consumer).collect();
}

/// A worker of a type that keeps its order and cannot reach its service. It holds a delivery. Another worker waits.
fn blocked(world: &mut World) {
    world.seen.channels = Some(vec![holder(&["billing.processor.mail"], 10, 90)]);
    let active = Consumer {
        queue: "billing.processor.mail".to_owned(),
        unavailable: Some("connection refused".to_owned()),
        ..Consumer::default()
    };
    world.seen.consumers = vec![active.clone(), Consumer { waits: true, unavailable: None, ..active }];
}

/// Lets a program consume a queue.
fn consume(world: &mut World, queue: &str, product: &str, owner: Option<&str>) {
    world.seen.consumers.push(Consumer {
        queue: queue.to_owned(),
        connection: Some(format!("10.0.0.9:{} -> 10.0.0.2:5672", product.len())),
        client: Some(Client { product: Some(product.to_owned()), program: None }),
        owner: owner.map(str::to_owned),
        ..Consumer::default()
    });
}

/// Binds a queue to an exchange.
fn bind(world: &mut World, exchange: &str, queue: &str, key: &str) {
    world.objects().bindings.push(LiveBinding {
        source: exchange.to_owned(),
        destination: queue.to_owned(),
        destination_type: "queue".to_owned(),
        routing_key: key.to_owned(),
        ..LiveBinding::default()
    });
}

fn exchange<'w>(world: &'w mut World, name: &str) -> &'w mut LiveExchange {
    world.objects().exchanges.iter_mut().find(|live| live.name == name).expect("it is there")
}

fn queue<'w>(world: &'w mut World, name: &str) -> &'w mut LiveQueue {
    world.objects().queues.iter_mut().find(|live| live.name == name).expect("it is there")
}

#[rstest]
#[case(|_: &mut World| (), &[])]
#[case(
    |world: &mut World| {
        alarmed(world);
        exchange(world, "billing.scheduler").arguments.remove("alternate-exchange");
        exchange(world, "billing.retry").arguments.clear();
        queue(world, "billing.hatchery.5m").arguments.remove("x-message-ttl");
    },
    &[
        "events may be lost: not as the file says: exchange billing.retry (alternate-exchange none -> billing.unrouted), \
         exchange billing.scheduler (alternate-exchange none -> billing.unrouted), queue billing.hatchery.5m (x-message-ttl \
         none -> 300000)",
        "RabbitMQ blocks all publishers: disk alarm on rabbit@a",
    ]
)]
#[case(
    |world: &mut World| {
        let bindings = &mut world.objects().bindings;
        bindings.retain(|live| live.source != "billing.unrouted" || live.routing_key != "#");
    },
    &["events may be lost: not as the file says: binding billing.unrouted -> billing.unrouted (#) (missing)"]
)]
// A file that says `queue-type` or `on-failure: block` anew, and is not applied yet.
#[case(
    |world: &mut World| {
        let live = queue(world, "billing.processor.mail");
        live.kind = Some("classic".to_owned());
        live.arguments.remove("x-overflow");
        live.arguments.remove("x-dead-letter-strategy");
        let live = queue(world, "billing.processor.hr-import");
        live.arguments.insert("x-single-active-consumer".to_owned(), json!(true));
        live.arguments.insert("x-delivery-limit".to_owned(), json!(1_000_000_000));
    },
    &["the broker's objects are not as the file says: 2 to migrate"]
)]
#[case(
    |world: &mut World| {
        consume(world, "billing.processor.mail", "hatchery", None);
        consume(world, "billing.processor.mail", "pika", Some("billing"));
        consume(world, "billing.dead-letter.mail", "hatchery", None);
        consume(world, "somebody.elses", "pika", None);
    },
    &[]
)]
#[case(
    |world: &mut World| {
        consume(world, "billing.processor.mail", "pika", Some("shipping"));
        consume(world, "billing.hatchery.5m", "pika", Some("billing"));
        consume(world, "billing.unrouted", "amqplib", None);
    },
    &[
        "connection 10.0.0.9:4 -> 10.0.0.2:5672 (pika) is not known as a worker and takes messages of billing.hatchery.5m, \
         billing.processor.mail",
        "connection 10.0.0.9:7 -> 10.0.0.2:5672 (amqplib) is not known as a worker and takes messages of billing.unrouted",
    ]
)]
#[case(
    |world: &mut World| bind(world, "billing.processor", "billing.processor.mail", "#"),
    &["binding billing.processor -> billing.processor.mail (#) brings events that are not meant for the queue"]
)]
#[case(
    |world: &mut World| {
        bind(world, "shop", "billing.processor.mail", "mail.#");
        bind(world, "shop", "billing.source.hr", "#");
    },
    &[]
)]
#[case(blocked, &["the handler of mail is unavailable: connection refused"])]
#[case(|world: &mut World| unavailable(world, 2), &["the handler of mail is unavailable: connection refused"])]
#[case(
    |world: &mut World| unavailable(world, 1),
    &[
        "an event of mail (0197c5e2) was due 3h ago and has not run",
        "the handler of mail is unavailable in 1 of 2 workers: connection refused",
    ]
)]
#[case(alarmed, &["RabbitMQ blocks all publishers: disk alarm on rabbit@a"])]
#[case(
    |world: &mut World| world.policy("ha", "^billing\\.hatchery", "message-ttl"),
    &["policy ha (message-ttl) shadows billing.hatchery.250ms, billing.hatchery.5m, billing.hatchery.1h: events may be lost or stuck"]
)]
#[case(|world: &mut World| world.policy("ha", ".*", "ha-mode"), &[])]
#[case(
    |world: &mut World| world.objects().exchanges.clear(),
    &["the topology was never applied here: there is no exchange billing.scheduler"]
)]
#[case(wedged, &["billing.hatchery.5m is wedged: 41 events are due and cannot leave"])]
#[case(
    |world: &mut World| world.fill("billing.unrouted", 1),
    &["1 event is in billing.unrouted: no queue was bound for its type or delay"]
)]
#[case(
    |world: &mut World| world.fill("billing.processor.mail", 412),
    &["412 events wait in billing.processor.mail, and it has no consumer"]
)]
#[case(
    |world: &mut World| {
        world.fill("billing.aside.log", 1);
        world.fill("billing.processor.log", 2);
    },
    &["3 events wait in billing.processor.log, billing.aside.log, and they have no consumer"]
)]
// A worker consumes the processing queue, and takes from the quarantine queue what it has put there.
#[case(
    |world: &mut World| {
        world.fill("billing.aside.log", 1);
        world.fill("billing.processor.log", 0);
        world.work("billing.processor.log");
    },
    &[]
)]
#[case(|world: &mut World| world.fill("billing.retry.mail.10s", 412), &[])]
#[case(|world: &mut World| world.fill("billing.hatchery.1h", 412), &[])]
#[case(
    |world: &mut World| world.seen.channels = Some(vec![holder(&["billing.processor.mail"], 200, 90)]),
    &["connection 10.0.0.7:45118 -> 10.0.0.2:5672 (reports @ worker-7) holds 200 deliveries of billing.processor.mail \
       and has acknowledged none for 1m 30s"]
)]
// A run of hr-import may take two minutes.
#[case(|world: &mut World| world.seen.channels = Some(vec![holder(&["billing.processor.hr-import"], 200, 90)]), &[])]
// Somebody else's queue.
#[case(|world: &mut World| world.seen.channels = Some(vec![holder(&["legacy.tmp"], 200, 300)]), &[])]
// It consumes nothing, and nothing of this topology is held.
#[case(|world: &mut World| world.seen.channels = Some(vec![holder(&[], 200, 300)]), &[])]
#[case(overdue, &["an event of mail (0197c5e2) was due 3h ago and has not run"])]
#[case(
    |world: &mut World| { overdue(world); world.fill("billing.processor.mail", 9); },
    &["9 events wait in billing.processor.mail, and it has no consumer"]
)]
#[case(
    |world: &mut World| world.seen.redis = Redis::Away { why: "Redis at redis://r is away: refused".to_owned() },
    &["Redis does not answer: Redis at redis://r is away: refused; workers take no events of types that use it"]
)]
// Its workers wait for Redis. Those of `log` do not use it.
#[case(
    |world: &mut World| {
        world.seen.redis = Redis::Away { why: "Redis at redis://r is away: refused".to_owned() };
        world.fill("billing.processor.mail", 13);
        world.fill("billing.processor.log", 2);
    },
    &[
        "Redis does not answer: Redis at redis://r is away: refused; workers take no events of types that use it, and 13 \
         events wait",
        "2 events wait in billing.processor.log, and it has no consumer",
    ]
)]
#[case(
    |world: &mut World| {
        refusing(world, Trouble::OutOfMemory, "Redis at redis://r is out of memory: OOM command not allowed.");
        world.register().has_owner = false;
        overdue(world);
        world.fill("billing.processor.mail", 1);
    },
    &[
        "Redis takes no writes: Redis at redis://r is out of memory: OOM command not allowed; workers take no events of \
         types that use it, and 1 event waits",
    ]
)]
#[case(
    |world: &mut World| world.seen.redis = Redis::Taken { by: "old".to_owned() },
    &["the register in Redis is in use by the broker old: workers of this one are refused"]
)]
#[case(
    |world: &mut World| { world.register().has_owner = false; world.fill("billing.retry.mail.1m", 7); },
    &["Redis knows none of the 7 events on the broker: it was emptied, and what was replaced or cancelled runs again"]
)]
// Nobody has published yet.
#[case(|world: &mut World| world.register().has_owner = false, &[])]
#[case(
    |world: &mut World| world.register().evicts = Some("allkeys-lru".to_owned()),
    &["Redis evicts keys when its memory is full (maxmemory-policy allkeys-lru): events may run again"]
)]
#[case(
    |world: &mut World| world.seen.blind = vec![Blind::Management { why: "the management API is unreachable".to_owned() }],
    &["alarms, policies, wedged timers, strangers and consumers that do not acknowledge are not known: the management API is \
       unreachable"]
)]
#[case(|world: &mut World| world.seen.blind = vec![Blind::Rates, Blind::Channels], &[])]
#[case(
    |world: &mut World| { world.objects().queues.retain(|queue| queue.name != "billing.hatchery.1h"); },
    &["the broker's objects are not as the file says: 1 missing"]
)]
#[case(
    |world: &mut World| {
        world.seen.objects = None;
        world.seen.missing = vec!["billing.hatchery.1h".to_owned(), "billing.hatchery.5m".to_owned()];
    },
    &["the broker's objects are not as the file says: 2 missing"]
)]
#[case(growing, &["123 dead letters: 120 of mail (+100 in 10m), 3 of log"])]
#[case(
    |world: &mut World| { world.leave("billing.dead-letter.post", 2); world.leave("shipping.dead-letter.mail", 9); },
    &["2 dead letters of post (no longer in the file)"]
)]
// A queue for letters of a source that has left the file, and the lock of somebody who looks at it.
#[case(
    |world: &mut World| {
        world.leave("billing.dead-letter.source-till", 1);
        world.leave("billing.dead-letter.source-till.look", 1);
        world.fill("billing.dead-letter.mail", 3);
    },
    &["4 dead letters: 3 of mail, 1 of source-till (no longer in the file)"]
)]
fn a_finding_says_what_is_wrong(#[case] change: fn(&mut World), #[case] expected: &[&str]) {
    let mut world = World::new();
    change(&mut world);
    let words: Vec<String> = world.findings().iter().map(Finding::words).collect();
    assert_eq!(words, expected);
}

#[test]
fn overdue_events_are_counted_and_the_command_runs_those_whose_payload_is_kept() {
    const FILE: &str =
        "version: 1\nname: billing\ntypes: { mail: { keep-payload: 4KiB }, letter: {}, fax: { keep-payload: 4KiB } }\n";
    let of = |name: &str, minutes: i64, events: usize, may_be_more: bool| OverdueEvent {
        event_type: name.parse().expect("a word"),
        reference: None,
        id: Some(format!("{name}-1")),
        due: World::of(FILE).seen.at - SignedDuration::from_mins(minutes),
        events,
        may_be_more,
    };
    let found = |overdue: &[OverdueEvent]| {
        let mut world = World::of(FILE);
        world.seen.overdue = overdue.to_vec();
        let finding = world.findings().remove(0);
        (finding.words(), finding.command())
    };
    let (mail, letter, fax) = (of("mail", 180, 3, false), of("letter", 60, 1, false), of("fax", 30, 200, true));
    let (words, command) = found(std::slice::from_ref(&mail));
    assert_eq!(words, "3 events of mail are overdue: the first one (mail-1) was due 3h ago and has not run");
    assert_eq!(command, "topology events run-now --type mail --state waiting --state retry --due-before '1m ago'");
    let (words, command) = found(&[mail, letter.clone(), fax]);
    let expected = "at least 204 events of mail and 2 more types are overdue: the first one (mail-1) was due 3h ago and has not run";
    assert_eq!(words, expected);
    assert_eq!(
        command,
        "topology events run-now --type mail --type fax --state waiting --state retry --due-before '1m ago'"
    );
    // Without its payload an event cannot be published again.
    assert_eq!(
        found(&[letter]).1,
        "topology events list --type letter --state waiting --state retry --due-before '1m ago'"
    );
}

#[test]
fn findings_are_in_the_order_of_their_severity() {
    let mut world = World::new();
    growing(&mut world);
    overdue(&mut world);
    world.policy("ha", "^billing\\.hatchery", "message-ttl");
    world.fill("billing.unrouted", 500);
    alarmed(&mut world);
    world.objects().queues.retain(|queue| queue.name != "billing.retry.mail.10s");
    let severities: Vec<Severity> = world.findings().iter().map(Finding::severity).collect();
    assert_eq!(severities.len(), 6);
    assert!(severities.is_sorted_by(|one, other| one >= other), "{severities:?}");
}

const SOURCES: &str = "\
version: 1
name: billing
types: { mail: {} }
sources:
  hr: { declare: on, events: [ { type: mail } ] }
  theirs: { queue: hr-changes, events: [ { type: mail } ] }
";

#[test]
fn a_source_without_a_consumer_or_a_queue_is_found() {
    let mut world = World::of(SOURCES);
    let missing = Finding::SourceMissing { queues: vec!["hr-changes".to_owned()], source: "theirs".to_owned() };
    assert_eq!(world.findings(), [missing]);
    let foreign = LiveQueue { name: "hr-changes".to_owned(), ..LiveQueue::default() };
    world.objects().queues.push(foreign);
    assert_eq!(world.findings(), []);
    world.fill("billing.source.hr", 9);
    let queues = vec![Queue { queue: "billing.source.hr".to_owned(), messages: 9 }];
    let finding = |redelivered| Finding::SourceNoConsumer {
        queues: queues.clone(),
        redelivered,
        source: "hr".to_owned(),
        has_left: false,
    };
    assert_eq!(world.findings(), [finding(None)]);
    world.seen.redelivered.insert("billing.source.hr".to_owned());
    assert_eq!(world.findings(), [finding(Some("billing.source.hr".to_owned()))]);
    world.queue("billing.source.hr", |figures| figures.counts.consumers = Some(1));
    assert_eq!(world.findings(), []);
}

#[test]
fn dead_letters_of_a_source_are_found() {
    let mut world = World::of(SOURCES);
    world.objects().queues.push(LiveQueue { name: "hr-changes".to_owned(), ..LiveQueue::default() });
    world.fill("billing.dead-letter.source-hr", 3);
    let findings = world.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].words(), "3 dead letters of source-hr");
    assert_eq!(findings[0].command(), "topology dead-letter list --type source-hr");
}

const SCHEDULES: &str = "\
version: 1
name: billing
types: { mail: {} }
schedules:
  nightly: { type: mail, cron: \"0 3 * * *\" }
  poll: { type: mail, every: 5m }
";

#[test]
fn a_machine_whose_clock_is_wrong_is_named() {
    let mut world = World::new();
    let clock = |machine: &str, seconds| ReportedClock {
        machine: machine.to_owned(),
        ahead: SignedDuration::from_secs(seconds),
    };
    world.seen.wrong_clocks = vec![clock("worker-7", 2_592_000), clock("laptop", -90)];
    let words: Vec<String> = world.findings().iter().map(Finding::words).collect();
    let expected = ["the clock of worker-7 is 30d ahead of Redis's", "the clock of laptop is 1m 30s behind Redis's"];
    assert_eq!(words, expected);
}

#[test]
fn a_schedule_that_is_late_paused_or_not_applied_is_found() {
    let mut world = World::of(SCHEDULES);
    let now = world.seen.at;
    let states = |at: Timestamp| {
        let apply = |definition: &Definition| {
            let (state, _) = ScheduleState::applied(None, definition, at).repaired(definition, at);
            let armed = state.armed.expect("an event").arm;
            (definition.name.to_string(), state.armed(&definition.digest(), armed, at))
        };
        hatchery::file::read(SCHEDULES, "topology.yaml").expect("a valid file").schedules.values().map(apply).collect()
    };
    // Without Redis nothing is known of schedules.
    assert_eq!(world.findings(), []);
    world.seen.schedules = Some(states(now));
    assert_eq!(world.findings(), []);

    // Ten minutes ago `poll` was due in five minutes.
    world.seen.schedules = Some(states(now - SignedDuration::from_mins(10)));
    let late = Finding::ScheduleLate {
        schedules: vec!["poll".to_owned()],
        due: now - SignedDuration::from_mins(5),
        ago: "5m ago".to_owned(),
    };
    assert_eq!(world.findings(), [late]);

    let mut some: BTreeMap<String, ScheduleState> = states(now);
    some.remove("poll");
    let paused =
        some.remove("nightly").expect("a state").switched_on(&Pause::of_person(Paused::All, "closed", now, None));
    some.insert("nightly".to_owned(), paused);
    world.seen.schedules = Some(some);
    let expected = [
        Finding::ScheduleNotApplied { schedules: vec!["poll".to_owned()] },
        Finding::SchedulePaused { schedules: vec!["nightly".to_owned()], why: "closed".to_owned() },
    ];
    assert_eq!(world.findings(), expected);
}

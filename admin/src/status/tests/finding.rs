//! The finding that follows from each observation.

use std::collections::BTreeMap;

use hatchery::{
    Trouble,
    internals::{
        breaker::BreakerState,
        redis::ReportedClock,
        schedule::{definition::Definition, state::ScheduleState},
        switches::{Name, Pause, Paused, PausedBy, Switches},
    },
};
use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::{Value, json};

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

fn wedged(world: &mut World) {
    for _ in 0..2 {
        world.seen.readings.push(world.seen.readings[0].clone());
    }
    for reading in &mut world.seen.readings {
        let counts = &mut reading.queues.get_mut("billing.hatchery.5m").expect("it is there").counts;
        (counts.messages, counts.messages_dlx) = (Some(41), Some(41));
    }
}

fn overdue(world: &mut World) {
    world.seen.overdue = vec![OverdueEvent {
        event_type: mail(),
        reference: None,
        id: Some("0197c5e2".to_owned()),
        due: "2026-06-01T06:00:00Z".parse().expect("a time"),
        events: 1,
        may_be_more: false,
    }];
}

fn refusing(world: &mut World, trouble: Trouble, why: &str) {
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
    &["alarms, policies, wedged timers and consumers that do not acknowledge are not known: the management API is \
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

#[rstest]
#[case::nothing(None, true)]
#[case::the_type(Some(Paused::Type(Name(mail()))), false)]
#[case::all(Some(Paused::All), false)]
#[case::another_type(Some(Paused::Type(Name("log".parse().expect("a word")))), true)]
fn a_paused_type_whose_events_wait_is_no_alarm(#[case] of: Option<Paused>, #[case] is_alarm: bool) {
    let mut world = World::new();
    world.fill("billing.processor.mail", 40);
    let since = world.seen.at;
    let pause = |of| Pause { of, by: PausedBy::Person, reason: "R".to_owned(), since, until: None };
    world.seen.switches = Some(of.map_or_else(Switches::default, |of| Switches::default().with(pause(of), since)));
    assert_eq!(world.findings().len(), usize::from(is_alarm), "{:?}", world.findings());
    let status = world.status();
    let mail = status.types.iter().find(|line| line.name == "mail").expect("a line");
    assert_eq!(mail.paused, Some(!is_alarm));
    // A pause that is over holds nothing.
    for pause in world.seen.switches.iter_mut().flat_map(|switches| &mut switches.pauses) {
        pause.until = Some(since);
    }
    assert_eq!(world.findings().len(), 1);
    assert!(world.status().pauses.is_empty());
}

#[test]
fn switches_that_workers_cannot_read_are_found_once_the_topology_is_applied() {
    let mut world = World::new();
    world.seen.switches_unread = Some("there is no stream billing.control".to_owned());
    let [finding] = &world.findings()[..] else { panic!("{:?}", world.findings()) };
    assert_eq!(finding.words(), "workers that start take no event: there is no stream billing.control");
    world.objects().exchanges.clear();
    assert!(!world.findings().contains(finding), "a topology that is not applied needs no other finding");
}

#[test]
fn a_policy_that_limits_the_switches_says_what_follows() {
    let mut world = World::new();
    world.policy("tidy", "control", "max-age");
    let [finding] = &world.findings()[..] else { panic!("{:?}", world.findings()) };
    let expected =
        "policy tidy (max-age) shadows billing.control: once its last message is gone, new workers start no event";
    assert_eq!(finding.words(), expected);
}

#[test]
fn an_open_circuit_breaker_is_found() {
    let mut world = World::of("version: 1\nname: billing\ntypes: { mail: { breaker: { cooldown: manual } } }\n");
    let at = (world.seen.at - SignedDuration::from_mins(3)).as_millisecond();
    let state = |phase: &str| {
        let text = format!(
            r#"{{"era":{{"number":7,"round":0}},"phase":{phase},"opening":{{"at":{at},"by":"a","errors":100,"runs":230,
            "reasons":["refused","no route"],"is_notified":true}}}}"#
        );
        BreakerState::parse(&text).expect("a state")
    };
    let of_mail = || "mail".parse().expect("a type");
    world.seen.breakers = [(of_mail(), state(&format!(r#"{{"open":{{"since":{at}}}}}"#)))].into();
    let findings = world.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    let expected = "the circuit breaker of mail is open, until a person closes it: it opened 3m ago at 100 errors of 230 runs: no route";
    assert_eq!(findings[0].words(), expected);
    assert_eq!(findings[0].command(), "topology breaker close mail");
    assert_eq!(findings[0].severity(), Severity::Stuck);
    world.seen.breakers = [(of_mail(), state(r#"{"closed":{"by":"person"}}"#))].into();
    assert_eq!(world.findings(), []);
}

/// A quiet type has no event to try, for as long as nobody publishes one.
#[rstest]
#[case::no_worker_has_asked(r#"{"open":{"since":0}}"#)]
#[case::a_worker_has_asked(r#"{"half-open":{"grants":[]}}"#)]
fn a_half_open_circuit_breaker_is_not_stuck(#[case] phase: &str) {
    let mut world = World::of("version: 1\nname: billing\ntypes: { mail: { breaker: {} } }\n");
    let at = (world.seen.at - SignedDuration::from_hours(2)).as_millisecond();
    let text = format!(
        r#"{{"era":{{"number":7,"round":0}},"phase":{phase},"opening":{{"at":{at},"by":"a","errors":100,"runs":230,
        "reasons":["refused"],"is_notified":true}}}}"#
    );
    let state = BreakerState::parse(&text).expect("a state");
    world.seen.breakers = [("mail".parse().expect("a type"), state)].into();
    let findings = world.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].severity(), Severity::Look);
    let expected = "the circuit breaker of mail is half-open and tries its next events: it opened 2h ago at 100 errors of 230 runs: refused";
    assert_eq!(findings[0].words(), expected);
}

#[test]
fn a_circuit_breaker_that_status_cannot_see_is_told() {
    let mut world = World::of(
        "version: 1\nname: billing\ntypes: { mail: { breaker: {} }, log: { register: off, breaker: {} }, post: {} }\n",
    );
    world.seen.blind = vec![Blind::Breakers { why: "WRONGTYPE".to_owned() }];
    let unknown = world.status().unknown;
    let expected = [
        "whether the circuit breakers of mail are open: WRONGTYPE",
        "whether the circuit breakers of log are open: with `register: off` each worker has its own, and its log tells",
    ];
    assert_eq!(unknown, expected);
}

//! Every finding has a place in the runbook, and the JSON is as its schema says.

use std::{collections::BTreeSet, fs};

use hatchery_admin::{
    Found,
    figures::Alarm,
    plan::{Address, Difference, Kind, Shadowing, WrongObject},
    status::{Cure, Failing, Finding, Letters, OpenBreaker, Queue},
};
use jiff::Timestamp;
use jsonschema::Validator;
use serde_json::Value;

#[path = "../../../../../tests/support/closed.rs"]
mod closed;

use super::broken;
use crate::verbs::status::Document;

/// Returns one finding of each kind.
#[expect(clippy::too_many_lines, reason = "one value for each kind")]
pub(super) fn one_of_each() -> Vec<Finding> {
    let queue = |queue: &str, messages| Queue { queue: queue.to_owned(), messages };
    let letters = |queue: &str, messages, more| Letters {
        queue: queue.to_owned(),
        messages,
        not_open: Some(messages / 10),
        more,
        within_seconds: Some(600),
        left_file: false,
    };
    vec![
        Finding::WrongObjects {
            objects: vec![WrongObject {
                address: Address::new(Kind::Exchange, "billing.scheduler"),
                differences: vec![Difference {
                    property: "alternate-exchange".to_owned(),
                    before: None,
                    after: Some("billing.unrouted".into()),
                }],
            }],
        },
        Finding::BrokerAlarm {
            alarms: vec![Alarm { node: "rabbit@rabbit-0".to_owned(), resource: "memory".to_owned() }],
        },
        Finding::Shadowed {
            shadowing: Shadowing {
                policy: "expire-all".to_owned(),
                operator: false,
                keys: vec!["message-ttl".to_owned()],
                unknown: false,
                queues: vec!["billing.hatchery.5m".to_owned(), "billing.hatchery.1h".to_owned()],
            },
            vhost: "/".to_owned(),
            cure: Cure::Clear,
        },
        Finding::NotApplied { exchange: "billing.scheduler".to_owned() },
        Finding::SwitchesUnread { why: "there is no stream billing.control, which has what is paused".to_owned() },
        Finding::RedisAway {
            why: "Redis at redis://redis:6379/0 is away: Connection refused (os error 111)".to_owned(),
            waiting: 13,
        },
        Finding::RedisTakesNoWrites {
            state: "read-only",
            why: "Redis at redis://redis:6379/0 is read-only: READONLY You can't write against a read only replica."
                .to_owned(),
            waiting: 0,
        },
        Finding::RedisTaken { by: "rabbit-old".to_owned(), waiting: 0 },
        Finding::Wedged { queues: vec![queue("billing.hatchery.5m", 41)] },
        Finding::Unrouted { queue: queue("billing.unrouted", 500) },
        Finding::NoConsumer {
            queues: vec![queue("billing.processor.mail", 412)],
            event_type: "mail".to_owned(),
            types: vec!["mail".to_owned()],
            redelivered: Some("billing.processor.mail".to_owned()),
        },
        Finding::SourceNoConsumer {
            queues: vec![queue("billing.source.hr", 9)],
            redelivered: None,
            source: "hr".to_owned(),
            has_left: false,
        },
        Finding::SourceMissing { queues: vec!["hr-changes".to_owned()], source: "theirs".to_owned() },
        Finding::Stranger {
            connection: "10.0.0.9:51000 -> 10.0.0.2:5672".to_owned(),
            program: Some("Pika Python Client Library".to_owned()),
            queues: vec!["billing.dead-letter.mail".to_owned(), "billing.processor.mail".to_owned()],
            keeps_out: vec!["mail".to_owned()],
        },
        Finding::NotAcknowledging {
            connection: "10.0.0.7:45118 -> 10.0.0.2:5672".to_owned(),
            program: Some("reports @ worker-7".to_owned()),
            queues: vec!["billing.processor.hr-import".to_owned()],
            held: 200,
            silent_seconds: 260,
            worker: false,
        },
        Finding::NotAcknowledging {
            connection: "10.0.0.7:45119 -> 10.0.0.2:5672".to_owned(),
            program: Some("topology work mail @ worker-7".to_owned()),
            queues: vec!["billing.processor.mail".to_owned()],
            held: 10,
            silent_seconds: 260,
            worker: true,
        },
        Finding::Blocked {
            types: vec!["mail".to_owned()],
            connection: "10.0.0.7:45120 -> 10.0.0.2:5672".to_owned(),
            program: Some("topology work mail @ worker-7".to_owned()),
            held: 10,
            silent_seconds: 20,
            show: "topology events list --type mail --due-before now".to_owned(),
        },
        Finding::HandlerUnavailable {
            why: "error trying to connect: Connection refused (os error 111)".to_owned(),
            types: vec!["hr-import".to_owned(), "mail".to_owned()],
            workers: 6,
            of: 6,
            show: "topology events list --type hr-import --due-before now".to_owned(),
        },
        Finding::BreakerOpen {
            breakers: vec![OpenBreaker {
                event_type: "payment".to_owned(),
                state: "open",
                opened_at: Timestamp::UNIX_EPOCH,
                ago: "3m ago".to_owned(),
                errors: 100,
                runs: 230,
                reason: Some("the provider is down".to_owned()),
                waits_for_a_person: false,
            }],
        },
        Finding::Failing {
            types: vec![Failing {
                event_type: "mail".to_owned(),
                ended: 12,
                failed: 12,
                error: Some("timed out after 30s".to_owned()),
            }],
            show: "topology events list --type mail --state retry --state waiting".to_owned(),
        },
        Finding::Overdue {
            event_type: "hr-import".to_owned(),
            reference: Some("1234 a".to_owned()),
            id: None,
            due: Timestamp::UNIX_EPOCH,
            ago: "3h ago".to_owned(),
            events: 3,
            may_be_more: false,
            types: 2,
            command: "topology events run-now --type hr-import --type mail --state waiting --state retry --due-before '1m ago'".to_owned(),
        },
        Finding::ScheduleLate {
            schedules: vec!["nightly".to_owned(), "poll".to_owned()],
            due: Timestamp::UNIX_EPOCH,
            ago: "10m ago".to_owned(),
        },
        Finding::Misrouting {
            bindings: vec!["billing.processor -> billing.processor.mail (#)".to_owned()],
            prunable: true,
        },
        Finding::RedisEmptied { events: 412, at: None, ago: String::new() },
        Finding::RedisEmptied { events: 0, at: Some(Timestamp::UNIX_EPOCH), ago: "3h ago".to_owned() },
        Finding::RedisEvicts { policy: "allkeys-lru".to_owned() },
        Finding::NotRecorded {
            records: 1_200,
            why: Some("there is no exchange billing.life-cycle".to_owned()),
        },
        Finding::ClockWrong { machine: "worker-7".to_owned(), ahead_seconds: -86_400 },
        Finding::ManagementAway {
            why: "the management API at http://rabbit:15672 is unreachable: Connection refused (os error 111)"
                .to_owned(),
        },
        Finding::ScheduleNotApplied { schedules: vec!["nightly".to_owned()] },
        Finding::SchedulePaused {
            schedules: vec!["poll".to_owned()],
            why: "dead-letter: the bank is closed".to_owned(),
        },
        Finding::Drift { missing: 2, changed: 1, to_migrate: 0, blocked: 1 },
        Finding::DeadLetters {
            queues: vec![
                letters("billing.dead-letter.hr-import", 9_000, Some(1_200)),
                letters("billing.dead-letter.mail", 1_000, Some(0)),
            ],
        },
    ]
}

fn schema() -> Value {
    crate::verbs::schema::answer("status", false).expect("a schema")
}

#[test]
fn the_sample_has_one_finding_of_each_kind() {
    let kinds: BTreeSet<String> = one_of_each()
        .into_iter()
        .map(|finding| serde_json::to_value(finding).expect("JSON")["kind"].as_str().expect("a text").to_owned())
        .collect();
    let mut known = BTreeSet::new();
    collect(&schema(), &mut known);
    assert_eq!(kinds, known);
}

/// Collects all texts that the schema allows for a property `kind`.
fn collect(schema: &Value, known: &mut BTreeSet<String>) {
    if let Some(kind) = schema.pointer("/properties/kind/const").and_then(Value::as_str) {
        known.insert(kind.to_owned());
    }
    match schema {
        Value::Object(parts) => parts.values().for_each(|part| collect(part, known)),
        Value::Array(parts) => parts.iter().for_each(|part| collect(part, known)),
        _ => {}
    }
}

#[test]
fn every_finding_has_a_section_of_the_runbook() {
    let runbook = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runbook.md");
    let text = fs::read_to_string(runbook).expect("the runbook");
    let sections: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .map(|title| title.to_lowercase().replace(' ', "-"))
        .collect();
    let places = one_of_each().into_iter().map(|finding| Found::from(finding).runbook);
    let is_section =
        |place: &String| place.strip_prefix("docs/runbook.md#").is_some_and(|name| sections.contains(name));
    let missing: Vec<String> = places.filter(|place| !is_section(place)).collect();
    assert!(missing.is_empty(), "{missing:?} are none of {sections:?}");
}

#[test]
fn the_json_is_as_its_schema_says() {
    let mut schema = schema();
    closed::close(&mut schema);
    let validator = Validator::new(&schema).expect("a schema");
    let mut json = serde_json::to_value(Document::of(&broken())).expect("JSON");
    let errors: Vec<String> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    json["findings"][0]["kind"] = "unheard-of".into();
    assert!(!validator.is_valid(&json), "a kind that does not exist");
}

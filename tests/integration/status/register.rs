//! The findings of `status` about Redis.

use std::collections::{BTreeMap, BTreeSet};

use hatchery::internals::{
    ports::{Register as _, Reports as _},
    redis::RedisRegister,
    register::{
        DedupSlot, Owner, Record, Subject,
        ended_runs::{EndedRuns, Unrecorded},
    },
};
use jiff::{SignedDuration, Timestamp};

use hatchery::{NewEvent, Outcome};
use rstest::rstest;

use super::{finding, kinds, line, seen};
use crate::support::{
    broker::eventually,
    declared::{Declared, publish_all},
    process::Place,
    redis::{Server, free_port, keys},
    workers::Working,
};

fn register(declared: &Declared) -> RedisRegister {
    let topology = &declared.topology;
    RedisRegister::new(&declared.redis_url, &declared.host.name, &topology.name, &topology.redis).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_message_is_gone_is_overdue() {
    let declared = Declared::new("types: { mail: {} }\n").await;
    declared.own_register().await;
    // The register has an event of two hours ago and one of a moment ago, and the broker has neither.
    let (event_type, spec) = declared.topology.types.first_key_value().unwrap();
    let record = |id: &str, hours: i64| Record {
        subject: Subject { event_type: event_type.clone(), reference: None, id: id.to_owned() },
        slot: DedupSlot::Event(id.to_owned()),
        version: 0,
        due: Timestamp::now() - SignedDuration::from_hours(hours),
        reason: None,
        kept: None,
        terms: spec.terms(&declared.topology.redis),
    };
    register(&declared).record(&[record("new", 0), record("old", 2)]).await.unwrap();
    let place = Place::new(&declared);
    let (code, answer) = seen(&place).await;
    assert_eq!((code, kinds(&answer)), (Some(4), BTreeSet::from(["overdue"])), "{answer:#}");
    let overdue = finding(&answer, "overdue");
    assert_eq!((&overdue["id"], &overdue["types"]), (&"old".into(), &1.into()), "{overdue:#}");
    assert_eq!((&overdue["events"], &overdue["may_be_more"]), (&1.into(), &false.into()), "{overdue:#}");
    let late = line(&answer, "mail")["late_seconds"].as_u64();
    assert!(late.is_some_and(|late| (7_200..7_300).contains(&late)), "{answer:#}");
    let command = overdue["command"].as_str().unwrap();
    assert_eq!(command, "topology events list --type mail --state waiting --state retry --due-before '1m ago'");
    let arguments = ["events", "list", "--type", "mail", "--due-before", "1m ago"];
    let shown = place.run(&mut place.command(&arguments)).await.expect(0).stdout;
    assert!(shown.contains("old"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn overdue_events_whose_payload_is_kept_run_by_the_recommended_command() {
    let declared = Declared::new("types: { mail: { keep-payload: 4KiB } }\n").await;
    declared.own_register().await;
    let (place, amqp) = (Place::new(&declared), declared.amqp().await);
    publish_all(&declared.connect().await, (0..3).map(|n| NewEvent::new("mail", n.to_string())).collect()).await;
    declared.host.delete("queues", &[&declared.processing("mail"), "contents"]);
    // They were due a moment ago, and not a minute ago.
    let run_now = async |more: &[&str]| {
        let arguments = [&["events", "run-now", "--type", "mail", "--due-before", "now"], more].concat();
        place.run(&mut place.command(&arguments)).await.expect(0).stdout
    };
    let are_known = async || run_now(&[]).await.contains("would run now 3 events").then_some(());
    eventually("Redis knows the events", are_known).await;
    run_now(&["--yes"]).await;
    amqp.expect_untouched(&declared.processing("mail"), 3).await;
}

#[rstest]
#[case::out_of_memory("out-of-memory", &["CONFIG", "SET", "maxmemory", "1"], "memory")]
#[case::replica("read-only", &["REPLICAOF", "127.0.0.1", "1"], "replication")]
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_takes_no_writes_is_named(
    #[case] state: &str,
    #[case] enter: &[&str],
    #[case] section: &str,
    #[values(false, true)] is_applied: bool,
) {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis("types: { mail: {} }\n", &redis.url).await;
    if is_applied {
        declared.own_register().await;
    }
    redis.say(enter).await;
    publish_all(&declared.connect().await, vec![NewEvent::new("mail", "1")]).await;
    let (code, answer) = seen(&Place::new(&declared)).await;
    // It is neither emptied, nor does a worker help.
    assert_eq!((code, kinds(&answer)), (Some(4), BTreeSet::from(["redis-takes-no-writes"])), "{answer:#}");
    let found = finding(&answer, "redis-takes-no-writes");
    assert_eq!(found["state"], state, "{found:#}");
    assert!(found["command"].as_str().unwrap().ends_with(section), "{found:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_leaves_no_key_in_an_emptied_redis() {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis("types: { mail: {} }\n", &redis.url).await;
    seen(&Place::new(&declared)).await;
    assert_eq!(keys(&redis.url).await, BTreeSet::new(), "a worker would not learn that Redis was emptied");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_register_of_another_broker_is_reported() {
    let declared = Declared::new("types: { mail: {} }\n").await;
    let owner = Owner { topology: Some("t".to_owned()), cluster_name: Some("elsewhere".to_owned()) };
    register(&declared).set_owner(&owner).await.unwrap();
    let (code, answer) = seen(&Place::new(&declared)).await;
    assert_eq!((code, kinds(&answer)), (Some(4), BTreeSet::from(["redis-taken"])), "{answer:#}");
    assert_eq!(finding(&answer, "redis-taken")["by"], "elsewhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_type_whose_runs_nearly_all_time_out_is_named() {
    let declared = Declared::new("types: { mail: {}, log: {} }\n").await;
    declared.own_register().await;
    let names: Vec<_> = declared.topology.types.keys().cloned().collect();
    let [log, mail] = names.as_slice() else { panic!("{names:?}") };
    let (place, register) = (Place::new(&declared), register(&declared));
    let runs = |ended, failed| EndedRuns { ended, failed, error: Some("timed out after 30s".to_owned()) };
    let reported = [(log.clone(), runs(9, 2)), (mail.clone(), runs(4, 4))];
    register.report_runs(&reported.into(), &Unrecorded::default()).await.unwrap();
    let (code, answer) = seen(&place).await;
    assert_eq!((code, kinds(&answer)), (Some(3), BTreeSet::from(["failing"])), "{answer:#}");
    let failing = &finding(&answer, "failing")["types"];
    let expected = serde_json::json!([{ "type": "mail", "ended": 4, "failed": 4, "error": "timed out after 30s" }]);
    assert_eq!(*failing, expected, "{answer:#}");
    // With more runs it is no single event that fails again and again.
    register.report_runs(&[(mail.clone(), runs(6, 6))].into(), &Unrecorded::default()).await.unwrap();
    assert_eq!(seen(&place).await.0, Some(4));
    // Two runs succeed.
    let well = [(mail.clone(), EndedRuns { ended: 2, ..EndedRuns::default() })].into();
    register.report_runs(&well, &Unrecorded::default()).await.unwrap();
    let (code, answer) = seen(&place).await;
    assert_eq!((code, kinds(&answer)), (Some(0), BTreeSet::new()), "{answer:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_tells_how_its_last_runs_have_ended() {
    let declared = Declared::new("types: { mail: {} }\n").await;
    declared.own_register().await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::dead_letter("550"));
    publish_all(&hatchery, (0..3).map(|n| NewEvent::new("mail", n.to_string())).collect()).await;
    worker.runs.reach(3).await;
    worker.stop().await;
    let (_, answer) = seen(&Place::new(&declared)).await;
    assert!(kinds(&answer).contains("failing"), "{answer:#}");
    let expected = serde_json::json!([{ "type": "mail", "ended": 3, "failed": 3, "error": "550" }]);
    assert_eq!(finding(&answer, "failing")["types"], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_workers_could_not_publish_are_told() {
    let declared = Declared::new("types: { mail: {} }\n").await;
    declared.own_register().await;
    let (place, register) = (Place::new(&declared), register(&declared));
    for (records, why) in [(7, "no exchange"), (3, "no right")] {
        let unrecorded = Unrecorded { records, why: Some(why.to_owned()) };
        register.report_runs(&BTreeMap::new(), &unrecorded).await.unwrap();
    }
    let (code, answer) = seen(&place).await;
    assert_eq!((code, kinds(&answer)), (Some(3), BTreeSet::from(["not-recorded"])), "{answer:#}");
    let told = finding(&answer, "not-recorded");
    assert_eq!((&told["records"], &told["why"]), (&10.into(), &"no right".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_that_a_newer_event_has_replaced_count_apart() {
    let declared = Declared::new("types: { mail: { coalesce: latest } }\n").await;
    declared.own_register().await;
    let (place, hatchery) = (Place::new(&declared), declared.connect().await);
    let event = |n: u32| NewEvent::new("mail", n.to_string()).reference(n.to_string());
    let worker = Working::start(&hatchery, "mail", |event| {
        if event.attempts == 0 && event.payload.len() == 1 { Outcome::dead_letter("550") } else { Outcome::Done }
    });
    publish_all(&hatchery, (0..3).map(event).collect()).await;
    declared.amqp().await.expect_untouched(&declared.dead_letters("mail"), 3).await;
    publish_all(&hatchery, vec![NewEvent::new("mail", "mended").reference("1")]).await;
    let answer = eventually("one of three letters is obsolete", async || {
        let (_, answer) = seen(&place).await;
        let is_told = kinds(&answer).contains("dead-letters")
            && finding(&answer, "dead-letters")["queues"][0]["messages"] == 3
            && finding(&answer, "dead-letters")["queues"][0]["not_open"] == 1;
        is_told.then_some(answer)
    })
    .await;
    let message = finding(&answer, "dead-letters")["message"].as_str().unwrap();
    assert!(
        message.starts_with("3 dead letters of mail (")
            && message.contains("1 obsolete, unreadable or unknown to Redis"),
        "{message}"
    );
    worker.stop().await;
}

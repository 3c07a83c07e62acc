//! The findings of `status` where it cannot see everything.

use std::collections::BTreeSet;

use hatchery::{NewEvent, Outcome};
use serde_json::Value;

use super::{finding, kinds, line, seen, status};
use crate::support::{
    broker::{Rights, eventually},
    cli::Bench,
    declared::{Declared, publish, publish_all},
    process::Place,
    redis::{Server, free_port},
    workers::Working,
};

const FILE: &str = "hatcheries: [1h]\ntypes: { mail: {}, log: { register: off } }\n";

/// A port of this machine at which nothing listens.
const NOWHERE: &str = "127.0.0.1:1";

#[tokio::test(flavor = "multi_thread")]
async fn without_the_management_api_status_tells_what_amqp_tells_and_what_is_unknown() {
    let declared = Declared::new(FILE).await;
    declared.own_register().await;
    let (place, hatchery) = (Place::new(&declared), declared.connect().await);
    publish_all(&hatchery, vec![NewEvent::new("mail", "1"), NewEvent::new("mail", "2")]).await;
    // A Redis that has just started may have workers.
    let answer = eventually("status names both", async || {
        let mut command = status(&place, &["--detailed-exitcode", "-o", "json"]);
        let ended = place.run(command.env("RABBITMQ_MANAGEMENT_URL", format!("http://{NOWHERE}"))).await;
        let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
        let is_named = kinds(&answer) == BTreeSet::from(["no-consumer", "management-away"]);
        is_named.then(|| assert_eq!(ended.status.code(), Some(4))).map(|()| answer)
    })
    .await;
    let mail = line(&answer, "mail");
    assert_eq!((mail["due"].as_u64(), mail["workers"].as_u64(), mail["delayed"].as_u64()), (Some(2), Some(0), Some(0)));
    assert!(mail["out_rate"].is_null() && answer["broker"].is_null() && answer["leftovers"].is_null(), "{answer:#}");
}

/// RabbitMQ's statistics have a consumer some seconds later, and AMQP has it at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_has_just_started_is_seen() {
    let declared = Declared::new(FILE).await;
    declared.own_register().await;
    let (place, hatchery) = (Place::new(&declared), declared.connect().await);
    publish_all(&hatchery, vec![NewEvent::new("mail", "1"), NewEvent::new("mail", "2")]).await;
    let says_so = async || kinds(&seen(&place).await.1).contains("no-consumer");
    eventually("status names the queue", async || says_so().await.then_some(())).await;
    let (worker, gate) = Working::gated(hatchery.worker(), "mail");
    worker.runs.reach(1).await;
    assert!(!says_so().await);
    gate.let_through(2);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_object_is_seen_without_the_management_api() {
    let declared = Declared::new(FILE).await;
    let place = Place::new(&declared);
    declared.amqp().await.delete_queue("t.hatchery.1h").await;
    let mut command = status(&place, &["-o", "json"]);
    let ended = place.run(command.env("RABBITMQ_MANAGEMENT_URL", format!("http://{NOWHERE}"))).await.expect(0);
    let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(finding(&answer, "drift")["missing"], 1, "{answer:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_says_that_redis_does_not_answer() {
    let declared = Declared::new(FILE).await;
    let place = Place::new(&declared);
    let mut command = status(&place, &["--detailed-exitcode", "-o", "json"]);
    let ended = place.run(command.env("REDIS_URL", format!("redis://:s3cret@{NOWHERE}"))).await.expect(4);
    let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(kinds(&answer), BTreeSet::from(["redis-away"]), "{answer:#}");
    assert!(!ended.stdout.contains("s3cret") && line(&answer, "mail")["delayed"].is_null(), "{answer:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_says_that_redis_was_emptied() {
    let declared = Declared::new(FILE).await;
    let hatchery = declared.connect().await;
    publish_all(&hatchery, vec![NewEvent::new("mail", "1")]).await;
    // With another prefix the register has no keys, as if Redis was emptied.
    let emptied = declared.with_another_prefix();
    let place = Place::new(&emptied);
    eventually("status says it", async || {
        let (_, answer) = seen(&place).await;
        kinds(&answer).contains("redis-emptied").then(|| assert_eq!(finding(&answer, "redis-emptied")["events"], 1))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_the_tag_monitoring_is_told_what_it_cannot_see() {
    let declared = Declared::new(FILE).await;
    declared.own_register().await;
    let place = Place::new(&declared);
    let rights = Rights {
        tag: "management".to_owned(),
        configure: ".*".to_owned(),
        write: ".*".to_owned(),
        read: ".*".to_owned(),
    };
    let user = declared.host.user("looker", &rights);
    let mut command = status(&place, &["--detailed-exitcode", "-o", "json"]);
    let ended = place.run(command.env("RABBITMQ_MANAGEMENT_URL", user.management()).env("AMQP_URL", user.amqp())).await;
    let answer: Value = serde_json::from_str(&ended.stdout).unwrap();
    let unknown = answer["unknown"].to_string();
    assert!(unknown.contains("this user needs the tag `monitoring`"), "{answer:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_redis_who_may_not_call_info_is_told_that_evictions_are_unknown() {
    let redis = Server::start(free_port(), &[]);
    let declared = Declared::with_redis(FILE, &redis.url).await;
    declared.own_register().await;
    let place = Place::new(&declared);
    let unknown = async || seen(&place).await.1["unknown"].to_string();
    let told = "whether Redis evicts keys: the user of --redis-url (REDIS_URL) may not call INFO (+info)";
    let known = unknown().await;
    assert!(!known.contains(told), "{known}");
    redis.say(&["ACL", "SETUSER", "default", "-info"]).await;
    let known = unknown().await;
    assert!(known.contains(told), "{known}");
}

/// Else a schedule that is late, or a type of which all runs fail, would be on no screen.
#[tokio::test(flavor = "multi_thread")]
async fn what_redis_refuses_to_tell_is_named() {
    let redis = Server::start(free_port(), &[]);
    let declared =
        Declared::with_redis(&format!("{FILE}schedules: {{ daily: {{ type: mail, every: 1d }} }}\n"), &redis.url).await;
    declared.own_register().await;
    let hatchery = declared.connect().await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Retry { reason: "no luck".into(), after: None });
    publish(&hatchery, NewEvent::new("mail", "")).await;
    worker.runs.reach(1).await;
    let place = Place::new(&declared);
    let unknown = async || seen(&place).await.1["unknown"].to_string();
    let parts =
        ["whether schedules run: ", "whether runs fail, and what else workers report: ", "how late events are: "];
    let known = unknown().await;
    assert!(!parts.iter().any(|part| known.contains(part)), "{known}");
    redis.say(&["ACL", "SETUSER", "default", "-hgetall"]).await;
    eventually("the reports are refused, once there are any", async || {
        let known = unknown().await;
        parts[..2].iter().all(|part| known.contains(part)).then_some(())
    })
    .await;
    worker.stop().await;
}

#[test]
fn a_topology_that_was_never_applied_is_reported_as_such() {
    let bench = Bench::new("version: 1\nname: t\ntypes: { log: { register: off } }\n");
    let ran = bench.expect(4, &["status", "--detailed-exitcode", "-o", "json"]);
    assert_eq!(kinds(&ran.json()), BTreeSet::from(["not-applied"]), "{ran:?}");
    bench.apply();
    let ran = bench.expect(0, &["status", "--detailed-exitcode"]);
    assert!(ran.stdout.contains("nothing is wrong"), "{ran:?}");
}

#[test]
fn an_unreachable_broker_is_an_error() {
    let bench = Bench::new("version: 1\nname: t\ntypes: { log: { register: off } }\n");
    let amqp = format!("amqp://guest:guest@{NOWHERE}");
    let ran = bench.expect(6, &["status", "--amqp-url", &amqp, "--management-url", &format!("http://{NOWHERE}")]);
    assert!(ran.stderr.contains("is unreachable"), "{ran:?}");
}

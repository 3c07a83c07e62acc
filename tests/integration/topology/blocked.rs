//! `plan` names what blocks an apply, and a blocked `apply` writes nothing at all. One of these is an exchange that somebody has
//! deleted and declared anew without its alternate exchange: the broker drops what no binding takes.

use hatchery::{BrokerError, NewEvent, Outcome, PublishError};
use serde_json::{Value, json};

use super::TOPOLOGY;
use crate::support::{
    broker::eventually,
    cli::{Bench, Ran},
    declared::{Declared, publish},
    logs::Logs,
    process::{Ended, Place},
    workers::Working,
};

/// Asserts that plan and apply both exit with 4 and show these texts, and that apply writes nothing.
#[track_caller]
fn assert_blocked(bench: &Bench, texts: &[&str]) {
    let shows = |ran: &Ran| texts.iter().all(|text| ran.stdout.contains(text));
    let everything = || ["exchanges", "bindings", "policies"].map(|kind| bench.host.list(kind));
    let (before, queues) = (everything(), bench.host.names("queues"));
    let planned = bench.expect(4, &["plan", "--detailed-exitcode"]);
    assert!(shows(&planned), "{}", planned.stdout);
    bench.expect(0, &["plan"]);
    let applied = bench.expect(4, &["apply", "--auto-approve"]);
    assert!(shows(&applied) && applied.stderr.contains("nothing was written"), "{applied:?}");
    let applied = bench.expect(4, &["apply", "--auto-approve", "-o", "json"]).json();
    assert_eq!((&applied["blocked"], &applied["applied"]), (&json!(true), &json!(false)));
    assert_eq!((everything(), bench.host.names("queues")), (before, queues));
}

/// Declares a queue again with other arguments, but without its bindings.
fn tamper(bench: &Bench, queue: &str, change: impl FnOnce(&mut Value)) {
    let live = bench.host.list("queues").into_iter().find(|live| live["name"] == queue).unwrap();
    let mut arguments = live["arguments"].clone();
    change(&mut arguments);
    bench.host.delete("queues", &[queue]);
    bench.host.put("queues", queue, &json!({ "durable": true, "arguments": arguments }));
}

#[test]
fn queues_with_another_ttl_and_of_another_type_block_an_apply() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    // The queues' bindings are gone too, and are not put back either.
    tamper(&bench, "billing.hatchery.1h", |arguments| arguments["x-message-ttl"] = json!(5));
    tamper(&bench, "billing.processor.mail", |arguments| {
        *arguments = json!({ "x-hatchery-owner": "billing", "x-queue-type": "classic" });
    });
    let texts = ["! queue    billing.hatchery.1h ", "x-message-ttl 5 -> 3600000\n", "x-queue-type classic -> quorum"];
    assert_blocked(&bench, &texts);
}

#[test]
fn policies_of_others_block_an_apply() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    bench.host.put("policies", "house", &json!({ "pattern": "1h$", "definition": { "max-length": 5 } }));
    assert_blocked(&bench, &["! queue    billing.hatchery.1h"]);
    bench.host.delete("policies", &["house"]);
    bench.expect(0, &["plan", "--detailed-exitcode"]);
    let policy = json!({ "pattern": "mail$", "definition": { "expires": 100_000_000 }, "apply-to": "queues" });
    bench.host.put("operator-policies", "limits", &policy);
    assert_blocked(&bench, &["shadowed by operator policy limits"]);
}

#[test]
fn a_topology_with_the_former_name_of_a_renamed_one_is_blocked() {
    let bench = Bench::new(&TOPOLOGY.replace("name: billing", "name: accounts\nrenamed-from: billing"));
    bench.apply();
    bench.write(TOPOLOGY);
    assert_blocked(&bench, &["blocked: the topology accounts has the"]);
    bench.write(&format!("{TOPOLOGY}redis: {{ prefix: billing }}\n"));
    bench.apply();
}

/// Deletes an exchange, and declares it as an import of definitions might.
fn declare_anew(declared: &Declared, exchange: &str) {
    declared.host.delete("exchanges", &[exchange]);
    let arguments = json!({ "x-hatchery-owner": "t" });
    declared.host.put("exchanges", exchange, &json!({ "type": "topic", "durable": true, "arguments": arguments }));
}

async fn run(declared: &Declared, arguments: &[&str]) -> Ended {
    let place = Place::new(declared);
    place.run(place.command(arguments).env("RABBITMQ_MANAGEMENT_URL", declared.host.management())).await
}

async fn migrate(declared: &Declared) {
    let ended = run(declared, &["apply", "--auto-approve", "--migrate"]).await;
    assert!(ended.expect(0).stdout.contains("1 migrated"));
}

#[tokio::test]
async fn a_publish_to_an_exchange_that_loses_it_fails() {
    let declared = Declared::new("types: { mail: {} }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "1")).await;
    declare_anew(&declared, "t.scheduler");
    let error = hatchery.publisher().publish(NewEvent::new("mail", "2")).await.unwrap_err();
    assert!(matches!(&error, PublishError::Broker(BrokerError::Unroutable { .. })), "{error:?}");
    for part in ["exchange t.scheduler", "`mail.now`", "alternate exchange", "topology apply"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    migrate(&declared).await;
    publish(&hatchery, NewEvent::new("mail", "3")).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(2).await;
    assert_eq!(worker.runs.payloads(), ["1", "3"]);
    assert_eq!(worker.stop().await.done, 2);
}

#[tokio::test]
async fn a_worker_keeps_an_event_whose_letter_would_be_lost() {
    let logs = Logs::capture();
    let declared = Declared::new("types: { mail: {} }").await;
    let hatchery = declared.connect().await;
    let refused = Outcome::DeadLetter { reason: "no".into() };
    let (worker, gate) = Working::gated_with(hatchery.worker(), "mail", refused);
    publish(&hatchery, NewEvent::new("mail", "{}")).await;
    worker.runs.reach(1).await;
    declare_anew(&declared, "t.dead-letter");
    gate.let_through(1);
    let found = ["publishing waits", "exchange t.dead-letter", "topology apply"];
    eventually("the worker finds out", async || (!logs.with(&found).is_empty()).then_some(())).await;
    migrate(&declared).await;
    let (amqp, letters) = (declared.amqp().await, declared.dead_letters("mail"));
    assert_eq!(amqp.take(&letters).await.data, b"{}");
    amqp.expect_empty(&declared.passages()).await;
    assert_eq!(worker.stop().await.dead_lettered, 1);
}

#[tokio::test]
async fn status_says_first_that_events_may_be_lost() {
    let declared = Declared::new("types: { mail: { register: off } }").await;
    declare_anew(&declared, "t.retry");
    declared.host.delete("queues", &["t.hatchery.250ms"]);
    let arguments = json!({ "x-hatchery-owner": "t", "x-queue-type": "quorum" });
    declared.host.put("queues", "t.hatchery.250ms", &json!({ "durable": true, "arguments": arguments }));
    let ended = run(&declared, &["status", "--detailed-exitcode", "-o", "json"]).await.expect(4);
    let answer: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    let first = &answer["findings"][0];
    assert_eq!(first["kind"], "wrong-objects", "{answer:#}");
    let objects = first["objects"].to_string();
    for part in ["t.retry", "alternate-exchange", "t.hatchery.250ms", "x-message-ttl", "x-dead-letter-exchange"] {
        assert!(objects.contains(part), "{part}: {objects}");
    }
    let kinds = answer["findings"].to_string();
    assert!(!kinds.contains("\"blocked\":1"), "{kinds}");
}

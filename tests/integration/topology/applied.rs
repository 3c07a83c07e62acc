//! `apply` creates what the file says, and undoes drift; also in a program that applies its topology at its start, as the
//! documentation of `hatchery-admin` shows it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hatchery::{
    Hatchery,
    internals::compile::{Argument, Binding, Desired, Queue, Target, compile},
};
use hatchery_admin::{Admin, AdminError, Severity, Verdict};
use serde_json::{Value, json};

use super::TOPOLOGY;
use crate::support::{
    broker::{eventually, text},
    cli::Bench,
    redis,
};

fn desired(topology: &str) -> Desired {
    compile(&hatchery::file::read(topology, "topology.yaml").unwrap()).unwrap()
}

fn json_arguments(arguments: &BTreeMap<String, Argument>) -> Value {
    arguments.iter().map(|(name, value)| (name.clone(), Value::from(value))).collect()
}

#[test]
fn apply_makes_the_broker_as_the_file_says() {
    let bench = Bench::new(TOPOLOGY);
    let planned = bench.expect(3, &["plan", "--detailed-exitcode"]);
    assert_eq!(planned.last(), "Plan: 36 add, 0 change.");
    assert!(planned.stdout.lines().all(|line| line.chars().count() <= 80), "{}", planned.stdout);
    assert_eq!(bench.expect(0, &["diff"]).stdout, planned.stdout, "`diff` shows another plan than `plan`");
    let nothing: Vec<Value> = Vec::new();
    for kind in ["exchanges", "queues", "bindings", "policies"] {
        assert_eq!(bench.host.list(kind), nothing, "plan has written {kind}");
    }

    let applied = bench.apply();
    assert!(applied.last().starts_with("Applied: 36 added, 0 changed, in "), "{}", applied.stdout);
    let in_sync = "No changes. The broker is as topology.yaml says.\n";
    assert_eq!(bench.expect(0, &["plan", "--detailed-exitcode"]).stdout, in_sync);
}

#[tokio::test]
async fn apply_creates_every_object_with_its_arguments() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    let desired = desired(TOPOLOGY);

    let object = |name: &str, kind: &str, arguments: Value| (name.to_owned(), (kind.to_owned(), arguments));
    let live = |kind: &str| -> BTreeMap<String, (String, Value)> {
        let list = bench.host.list(kind);
        assert!(list.iter().all(|live| live["durable"] == true && live["auto_delete"] == false), "{list:?}");
        list.iter().map(|live| object(text(live, "name"), text(live, "type"), live["arguments"].clone())).collect()
    };
    let exchanges: BTreeMap<_, _> =
        desired.exchanges.iter().map(|own| object(&own.name, "topic", json_arguments(&own.arguments))).collect();
    assert_eq!(live("exchanges"), exchanges);
    let kind = |own: &Queue| if own.is_stream() { "stream" } else { "quorum" };
    let queues: BTreeMap<_, _> =
        desired.queues.iter().map(|own| object(&own.name, kind(own), json_arguments(&own.arguments))).collect();
    assert_eq!(live("queues"), queues);

    let bindings: BTreeSet<Binding> = bench.host.list("bindings").iter().map(binding).collect();
    assert_eq!(bindings, desired.bindings.into_iter().collect());
    let policies: BTreeMap<String, (String, Value)> = bench
        .host
        .list("policies")
        .iter()
        .map(|live| object(text(live, "name"), text(live, "pattern"), live["definition"].clone()))
        .collect();
    let expected = desired.policies.iter().map(|own| object(&own.name, &own.pattern, json_arguments(&own.definition)));
    assert_eq!(policies, expected.collect());
    let processing = ["billing.processor.hr-import", "billing.processor.mail"];
    for (policy, queues) in [("billing.tunables", &processing[..]), ("billing.life-cycle", &["billing.life-cycle"])] {
        let expected: BTreeSet<String> = queues.iter().map(ToString::to_string).collect();
        eventually(&format!("{policy} applies to its queues only"), async || {
            let applies = bench.host.list("queues").into_iter().filter(|queue| queue["policy"] == policy);
            (applies.map(|queue| text(&queue, "name").to_owned()).collect::<BTreeSet<_>>() == expected).then_some(())
        })
        .await;
    }
}

fn binding(live: &Value) -> Binding {
    let name = text(live, "destination").to_owned();
    let exchange = text(live, "destination_type") == "exchange";
    let target = if exchange { Target::Exchange(name) } else { Target::Queue(name) };
    Binding { source: text(live, "source").to_owned(), target, key: text(live, "routing_key").to_owned() }
}

#[test]
fn applying_twice_changes_nothing() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    let everything = || ["exchanges", "bindings", "policies"].map(|kind| bench.host.list(kind));
    let before = everything();
    // Without changes there is no question, so no approval is needed.
    assert_eq!(bench.expect(0, &["apply"]).stdout, "No changes. The broker is as topology.yaml says.\n");
    assert_eq!(everything(), before);
}

#[test]
fn apply_undoes_drift() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    bench.host.delete("bindings", &["e", "billing.scheduler", "q", "billing.hatchery.1h", "*.1h"]);
    bench.host.delete("queues", &["billing.retry.mail.20ms"]);
    let policy = json!({ "pattern": "^billing", "definition": { "delivery-limit": 7 }, "apply-to": "queues" });
    bench.host.put("policies", "billing.tunables", &policy);

    let planned = bench.expect(3, &["plan", "--detailed-exitcode"]).stdout;
    assert!(planned.contains("~ policy   billing.tunables"), "{planned}");
    assert!(planned.contains("delivery-limit 7 -> 100"), "{planned}");
    assert!(
        planned.contains("~ binding  billing.scheduler -> billing.hatchery.1h (*.1h)  missing, put back"),
        "{planned}"
    );
    assert!(planned.contains("+ queue    billing.retry.mail.20ms"), "{planned}");
    assert!(planned.ends_with("Plan: 1 add, 2 change.\n"), "{planned}");
    bench.apply();
    bench.expect(0, &["plan", "--detailed-exitcode"]);
    let live: BTreeSet<Binding> = bench.host.list("bindings").iter().map(binding).collect();
    assert_eq!(live, desired(TOPOLOGY).bindings.into_iter().collect());
}

#[test]
fn a_leftover_stays_bound_without_prune() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    bench.write(&TOPOLOGY.replace("[50ms, 1h]", "[50ms]"));
    let planned = bench.expect(0, &["plan", "--detailed-exitcode"]).stdout;
    assert!(planned.starts_with("- queue    billing.hatchery.1h  leftover, still bound ("), "{planned}");
    assert!(
        planned.ends_with("No changes. The broker is as topology.yaml says.\n1 leftover stays (goes with --prune).\n"),
        "{planned}"
    );
    let before = bench.host.list("bindings");
    bench.expect(0, &["apply"]);
    assert_eq!(bench.host.list("bindings"), before);

    // A changed ladder is created beside the old one.
    bench.write(&TOPOLOGY.replace("10ms, horizon", "100ms, horizon"));
    let planned = bench.expect(3, &["plan", "--detailed-exitcode"]).stdout;
    assert!(planned.contains("+ ladder   billing.ladder.100ms-4  4 exchanges, 4 queues, 15 bindings\n"), "{planned}");
    assert!(
        planned.contains("- ladder   billing.ladder.10ms-7   leftover, 7 exchanges, 7 queues, 36 bindings\n"),
        "{planned}"
    );
    bench.apply();
    assert!(bench.host.names("queues").contains(&"billing.ladder.10ms-7.06-640ms".to_owned()));
}

#[test]
fn a_plan_as_json_has_every_change_with_its_line_in_the_file() {
    let bench = Bench::new(TOPOLOGY);
    bench.host.put("queues", "legacy.tmp", &json!({ "durable": true }));
    let plan = bench.expect(0, &["plan", "-o", "json"]).json();
    assert_eq!(
        plan["counts"],
        json!({ "add": 36, "change": 0, "migrate": 0, "leftover": 0, "blocked": 0, "shadowing": 0, "ignored": 1 })
    );
    assert_eq!(plan["format_version"], 1);
    let change = |name: &str| {
        let mut changes = plan["changes"].as_array().unwrap().iter();
        changes.find(|change| change["name"] == name).unwrap_or_else(|| panic!("no {name} in {plan}")).clone()
    };
    let queue = change("billing.hatchery.50ms");
    assert_eq!((text(&queue, "action"), text(&queue, "kind")), ("create", "queue"));
    assert_eq!(queue["object"]["arguments"]["x-message-ttl"], 50);
    // The lines on which the objects stand in the file.
    let lines = ["billing.hatchery.50ms", "billing.processor.mail", "billing.retry.mail.20ms", "billing.scheduler"];
    assert_eq!(lines.map(|name| change(name)["line"].clone()), [3, 7, 7, 2].map(|line| json!(line)));
    assert_eq!(text(&change("legacy.tmp"), "action"), "ignored");
    let binding = change("billing.scheduler -> billing.hatchery.50ms (*.50ms)");
    assert_eq!(binding["part_of"], json!({ "kind": "queue", "name": "billing.hatchery.50ms" }));

    let lines = bench.expect(0, &["plan", "-o", "ndjson"]).stdout;
    assert_eq!(lines.lines().count(), plan["changes"].as_array().unwrap().len() + 1);
    let applied = bench.expect(0, &["apply", "--auto-approve", "-o", "json"]).json();
    assert_eq!((&applied["applied"], &applied["counts"]["add"]), (&json!(true), &json!(36)));
}

#[test]
fn plan_with_v_shows_every_binding_and_every_foreign_object() {
    let bench = Bench::new(TOPOLOGY);
    bench.host.put("queues", "legacy.tmp", &json!({ "durable": true }));
    let planned = bench.expect(0, &["plan", "-v"]).stdout;
    assert_eq!(planned.matches("\n+ binding ").count(), desired(TOPOLOGY).bindings.len());
    assert!(planned.contains("? queue    legacy.tmp"), "{planned}");
}

#[allow(dead_code, reason = "its `main` is that of another program")]
#[path = "../../../admin/examples/apply.rs"]
mod example;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_applies_its_topology_at_its_start_and_prints_its_status() {
    let bench = Bench::new(TOPOLOGY);
    let topology = hatchery::file::read(TOPOLOGY, "topology.yaml").unwrap();
    let builder = Hatchery::builder(topology).amqp_url(bench.host.amqp()).redis_url(redis::url());
    let admin = Admin::new(builder).unwrap().management_url(&bench.host.management()).unwrap();
    let nothing = admin.plan_destroy(false, &()).await.unwrap();
    let status = admin.status(&()).await.unwrap();
    let [found] = status.findings.as_slice() else { panic!("{status:#?}") };
    assert_eq!((found.severity, found.command.as_str()), (Severity::Stuck, "topology apply"));
    example::apply(&admin).await.unwrap();
    let status = admin.status(&()).await.unwrap();
    assert_eq!(status.verdict, Verdict::Well, "{status:#?}");
    example::print(&status);
    bench.expect(0, &["plan", "--detailed-exitcode"]);
    // A destroy that found nothing before the apply does not say that nothing is there.
    let destroyed = admin.destroy(&nothing, Duration::from_secs(30), false, &()).await;
    assert!(matches!(destroyed, Err(AdminError::Stale)), "{destroyed:?}");
    // Another process of the program finds nothing to do.
    example::apply(&admin).await.unwrap();
}

//! `plan` names what blocks an apply, and a blocked `apply` writes nothing at all.

use serde_json::{Value, json};

use super::TOPOLOGY;
use crate::support::cli::Bench;

/// Asserts that plan and apply both exit with 4 and show this line, and that apply writes nothing.
#[track_caller]
fn assert_blocked(bench: &Bench, line: &str) {
    let everything = || ["exchanges", "bindings", "policies"].map(|kind| bench.host.list(kind));
    let (before, queues) = (everything(), bench.host.names("queues"));
    let planned = bench.expect(4, &["plan", "--detailed-exitcode"]);
    assert!(planned.stdout.contains(line), "{}", planned.stdout);
    bench.expect(0, &["plan"]);
    let applied = bench.expect(4, &["apply", "--auto-approve"]);
    assert!(applied.stdout.contains(line) && applied.stderr.contains("nothing was written"), "{applied:?}");
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
fn a_queue_with_another_ttl_blocks_an_apply() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    // The queue's bindings are gone too, and are not put back either.
    tamper(&bench, "billing.hatchery.1h", |arguments| arguments["x-message-ttl"] = json!(5));
    let line = "! queue    billing.hatchery.1h  x-message-ttl 5 -> 3600000\n";
    assert_blocked(&bench, line);
}

#[test]
fn a_queue_of_another_type_blocks_an_apply() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    tamper(&bench, "billing.processor.mail", |arguments| {
        *arguments = json!({ "x-hatchery-owner": "billing", "x-queue-type": "classic" });
    });
    assert_blocked(&bench, "x-queue-type classic -> quorum");
}

#[test]
fn an_exchange_without_its_alternate_exchange_blocks_an_apply() {
    let bench = Bench::new(TOPOLOGY);
    bench.host.put(
        "exchanges",
        "billing.scheduler",
        &json!({
            "type": "topic", "durable": true, "arguments": { "x-hatchery-owner": "billing" },
        }),
    );
    assert_blocked(&bench, "! exchange billing.scheduler");
    assert_eq!(bench.host.names("queues"), Vec::<String>::new());
}

#[test]
fn a_queue_without_an_owner_label_blocks_an_apply() {
    let bench = Bench::new(TOPOLOGY);
    bench.host.put("queues", "billing.processor.mail", &json!({ "durable": true }));
    assert_blocked(&bench, "blocked: not owned by billing");
    assert_eq!(bench.host.names("queues"), ["billing.processor.mail"]);
}

#[test]
fn a_foreign_policy_on_an_existing_queue_blocks_an_apply() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    bench.host.put("policies", "house", &json!({ "pattern": "1h$", "definition": { "max-length": 5 } }));
    assert_blocked(&bench, "! queue    billing.hatchery.1h");
    bench.host.delete("policies", &["house"]);
    bench.expect(0, &["plan", "--detailed-exitcode"]);
}

#[test]
fn a_foreign_policy_on_a_future_queue_blocks_an_apply() {
    let bench = Bench::new(TOPOLOGY);
    let policy = json!({ "pattern": "^(?!amq\\.)", "definition": { "message-ttl": 5 }, "priority": 0 });
    bench.host.put("policies", "house", &policy);
    assert_blocked(&bench, "shadowed by policy house (message-ttl)");
    assert_eq!(bench.host.names("queues"), Vec::<String>::new());
}

#[test]
fn an_operator_policy_blocks_an_apply() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    let policy = json!({ "pattern": "mail$", "definition": { "expires": 100_000_000 }, "apply-to": "queues" });
    bench.host.put("operator-policies", "limits", &policy);
    assert_blocked(&bench, "shadowed by operator policy limits");
}

#[test]
fn a_topology_with_the_former_name_of_a_renamed_one_is_blocked() {
    let bench = Bench::new(&TOPOLOGY.replace("name: billing", "name: accounts\nrenamed-from: billing"));
    bench.apply();
    bench.write(TOPOLOGY);
    assert_blocked(&bench, "blocked: the topology accounts has the");
    bench.write(&format!("{TOPOLOGY}redis: {{ prefix: billing }}\n"));
    bench.apply();
}

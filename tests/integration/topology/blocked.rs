//! What stands in the way is named, and then nothing at all is written.

use serde_json::{Value, json};

use super::TOPOLOGY;
use crate::support::cli::Bench;

/// Plan and apply both exit with 4 and show this line, and apply writes nothing.
#[track_caller]
fn blocked(bench: &Bench, line: &str) {
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

/// Declares a queue again with other arguments, its label kept.
fn tamper(bench: &Bench, queue: &str, change: impl FnOnce(&mut Value)) {
    let live = bench.host.list("queues").into_iter().find(|live| live["name"] == queue).unwrap();
    let mut arguments = live["arguments"].clone();
    change(&mut arguments);
    bench.host.delete("queues", &[queue]);
    bench.host.put("queues", queue, &json!({ "durable": true, "arguments": arguments }));
}

#[test]
fn a_queue_with_another_ttl() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    // Its bindings went with it, and are not put back either.
    tamper(&bench, "billing.hatchery.1h", |arguments| arguments["x-message-ttl"] = json!(5));
    let line = "! queue    billing.hatchery.1h  x-message-ttl 5 -> 3600000\n";
    blocked(&bench, line);
}

#[test]
fn a_queue_of_another_type() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    tamper(&bench, "billing.processor.mail", |arguments| {
        *arguments = json!({ "x-hatchery-owner": "billing", "x-queue-type": "classic" });
    });
    blocked(&bench, "x-queue-type classic -> quorum");
}

#[test]
fn an_exchange_without_its_alternate() {
    let bench = Bench::new(TOPOLOGY);
    bench.host.put(
        "exchanges",
        "billing.scheduler",
        &json!({
            "type": "topic", "durable": true, "arguments": { "x-hatchery-owner": "billing" },
        }),
    );
    blocked(&bench, "! exchange billing.scheduler");
    assert_eq!(bench.host.names("queues"), Vec::<String>::new());
}

#[test]
fn a_queue_that_is_not_ours() {
    let bench = Bench::new(TOPOLOGY);
    bench.host.put("queues", "billing.processor.mail", &json!({ "durable": true }));
    blocked(&bench, "blocked: not owned by billing");
    assert_eq!(bench.host.names("queues"), ["billing.processor.mail"]);
}

#[test]
fn a_strangers_policy_on_what_exists() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    bench.host.put("policies", "house", &json!({ "pattern": "1h$", "definition": { "max-length": 5 } }));
    blocked(&bench, "! queue    billing.hatchery.1h");
    bench.host.delete("policies", &["house"]);
    bench.expect(0, &["plan", "--detailed-exitcode"]);
}

#[test]
fn a_strangers_policy_on_what_does_not_exist_yet() {
    let bench = Bench::new(TOPOLOGY);
    let policy = json!({ "pattern": "^(?!amq\\.)", "definition": { "message-ttl": 5 }, "priority": 0 });
    bench.host.put("policies", "house", &policy);
    blocked(&bench, "shadowed by policy house (message-ttl)");
    assert_eq!(bench.host.names("queues"), Vec::<String>::new());
}

#[test]
fn an_operators_policy() {
    let bench = Bench::new(TOPOLOGY);
    bench.apply();
    let policy = json!({ "pattern": "mail$", "definition": { "expires": 100_000_000 }, "apply-to": "queues" });
    bench.host.put("operator-policies", "limits", &policy);
    blocked(&bench, "shadowed by operator policy limits");
}

#[test]
fn a_topology_that_was_renamed_keeps_its_keys_from_a_new_one_of_its_first_name() {
    let bench = Bench::new(&TOPOLOGY.replace("name: billing", "name: accounts\nrenamed-from: billing"));
    bench.apply();
    bench.write(TOPOLOGY);
    blocked(&bench, "blocked: the topology accounts has the");
    bench.write(&format!("{TOPOLOGY}redis: {{ prefix: billing }}\n"));
    bench.apply();
}

//! A type that was removed from the file while the register knows events of it.

use ::redis::AsyncCommands as _;
use serde_json::Value;

use crate::support::{
    cli::{Bench, Ran},
    redis,
};

/// A topology with these types, and a Redis key prefix of its own.
struct Deployment {
    bench: Bench,
    prefix: String,
}

impl Deployment {
    fn new(types: &str) -> Self {
        let prefix = redis::prefix();
        let deployment = Self { bench: Bench::new(&file(&prefix, types)), prefix };
        deployment.run(0, &["apply", "--auto-approve"]);
        deployment
    }

    fn write(&self, types: &str) {
        self.bench.write(&file(&self.prefix, types));
    }

    #[track_caller]
    fn run(&self, code: i32, arguments: &[&str]) -> Ran {
        let mut command = self.bench.command(arguments);
        Ran::run(command.env("REDIS_URL", redis::url())).expect(code)
    }

    fn has_queue(&self, name: &str) -> bool {
        self.bench.host.names("queues").iter().any(|queue| queue == name)
    }
}

fn file(prefix: &str, types: &str) -> String {
    format!(
        "version: 1\nname: billing\nredis: {{ prefix: {prefix}, shards: 3 }}\n\
         ladder: {{ resolution: 10ms, horizon: 2h }}\ntypes: {types}\n"
    )
}

#[test]
fn a_removed_type_with_waiting_events_is_warned_of_and_not_pruned() {
    let deployment = Deployment::new("{ import: {}, mail: {} }");
    for reference in ["1234", "1235"] {
        deployment.run(0, &["publish", "import", "--reference", reference, "--delay", "1h"]);
    }
    deployment.write("{ hr-import: {}, mail: {} }");

    let planned = deployment.run(3, &["plan", "--detailed-exitcode"]);
    assert!(planned.stderr.contains("`import` is no longer in the file, and 2 events of it wait"), "{planned:?}");
    assert!(planned.stderr.contains("renamed-from: import"), "{planned:?}");
    let json = deployment.run(4, &["plan", "--prune", "--detailed-exitcode", "-o", "json"]).json();
    assert_eq!((&json["left_types"][0]["type"], &json["left_types"][0]["events"]), (&"import".into(), &2.into()));
    assert!(json["left_types"][0]["next_due"].is_string() && json["blocked"] == true, "{json}");

    let pruned = deployment.run(4, &["apply", "--auto-approve", "--prune"]);
    assert!(pruned.stderr.contains("renamed-from: import"), "{pruned:?}");
    assert!(deployment.has_queue("billing.processor.import") && !deployment.has_queue("billing.processor.hr-import"));
    // Without `--prune`, its queue stays and still gets its events.
    let applied = deployment.run(0, &["apply", "--auto-approve"]);
    assert!(applied.stderr.contains("renamed-from: import"), "{applied:?}");
    assert!(deployment.has_queue("billing.processor.import") && deployment.has_queue("billing.processor.hr-import"));

    deployment.write("{ hr-import: { renamed-from: import }, mail: {} }");
    let planned = deployment.run(0, &["plan", "--prune"]);
    assert!(!planned.stderr.contains("no longer in the file"), "{planned:?}");
}

#[test]
#[ignore = "prunes queues, whose counts of 0 have to last 12 s; scripts/test --all runs it"]
fn a_removed_type_without_events_is_pruned() {
    let deployment = Deployment::new("{ import: {}, mail: {} }");
    deployment.run(0, &["publish", "import", "--reference", "1234", "--delay", "1h"]);
    deployment.run(0, &["events", "cancel", "--type", "import", "--reference", "1234"]);
    deployment.write("{ mail: {} }");
    let pruned = deployment.run(0, &["apply", "--auto-approve", "--prune"]);
    assert!(!pruned.stderr.contains("import"), "{pruned:?}");
    assert!(!deployment.has_queue("billing.processor.import"));
}

#[tokio::test]
async fn a_removed_type_with_events_is_not_pruned_if_another_type_cannot_be_read() {
    let deployment = Deployment::new("{ import: {}, payslip: {}, mail: {} }");
    deployment.run(0, &["publish", "import", "--reference", "1234", "--delay", "1h"]);
    let mut redis = redis::connect(redis::url()).await.unwrap();
    for shard in 0..3 {
        let Deployment { bench, prefix } = &deployment;
        let key = format!("{prefix}:{{{}:billing:{shard}}}:payslip:x", bench.host.name);
        let () = redis.set(key, "not a sorted set").await.unwrap();
    }
    deployment.write("{ mail: {} }");
    let json = deployment.run(4, &["plan", "--prune", "--detailed-exitcode", "-o", "json"]).json();
    let told = |place: usize| (&json["left_types"][place]["type"], &json["left_types"][place]["events"]);
    assert_eq!((told(0), told(1)), ((&"import".into(), &1.into()), (&"payslip".into(), &Value::Null)));
    let pruned = deployment.run(4, &["apply", "--auto-approve", "--prune"]);
    assert!(pruned.stderr.contains("whether events of `payslip` wait is unknown"), "{pruned:?}");
    assert!(deployment.has_queue("billing.processor.import"));
}

#[test]
fn a_plan_without_a_redis_url_does_not_connect_to_redis() {
    let planned = |types: &str, rest: &str| {
        let deployment = Deployment::new(types);
        deployment.write(rest);
        let mut command = deployment.bench.command(&["plan"]);
        Ran::run(command.env_remove("REDIS_URL").env_remove("REDIS_URL_FILE")).expect(0).stderr
    };
    let warning = "whether events of `import` wait is unknown";
    let without = planned("{ import: { register: off }, mail: { register: off } }", "{ mail: { register: off } }");
    assert!(!without.contains(warning), "{without}");
    let with = planned("{ import: {}, mail: {} }", "{ mail: {} }");
    assert!(with.contains(warning) && with.contains("no Redis URL is given"), "{with}");
}

#[test]
fn a_plan_without_redis_warns_that_waiting_events_are_unknown() {
    let deployment = Deployment::new("{ import: {}, mail: {} }");
    deployment.write("{ mail: {} }");
    let mut command = deployment.bench.command(&["plan", "--prune", "--detailed-exitcode"]);
    let planned = Ran::run(command.env("REDIS_URL", "redis://127.0.0.1:1")).expect(3);
    assert!(planned.stderr.contains("whether events of `import` wait is unknown"), "{planned:?}");
    // No type was removed, so the plan needs no Redis.
    deployment.write("{ import: {}, mail: {} }");
    let planned = deployment.bench.expect(0, &["plan"]);
    assert!(!planned.stderr.contains("whether events"), "{planned:?}");
}

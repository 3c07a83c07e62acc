//! A type that was removed from the file while the register knows events of it.

use ::redis::AsyncCommands as _;
use lapin::BasicProperties;
use serde_json::Value;

use crate::support::{
    amqp::Amqp,
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
fn dead_letters_of_a_removed_type_are_listed_and_those_of_a_renamed_one_are_of_its_new_name() {
    let deployment = Deployment::new("{ import: {}, mail: {} }");
    for (event_type, id) in [("import", "a"), ("mail", "b")] {
        deployment.run(0, &["publish", event_type, "--id", id]);
        deployment.run(0, &["work", "--type", event_type, "--stop-when-empty", "--exec", "/bin/sh", "-c", "exit 65"]);
    }
    let listed = |arguments: &[&str]| deployment.run(0, &[&["dead-letter", "list"], arguments].concat());
    deployment.write("{ hr-import: {}, mail: {} }");
    deployment.run(0, &["apply", "--auto-approve"]);
    let all = listed(&[]);
    assert!(all.stdout.contains("2 letters, 1 reason"), "{all:?}");
    assert!(all.stderr.contains("write `renamed-from: import` under its new name"), "{all:?}");
    let one = listed(&["--type", "import"]);
    assert!(one.stdout.contains("1 letter, 1 reason"), "{one:?}");
    let replayed = deployment.run(0, &["dead-letter", "replay", "--type", "import", "--yes"]);
    assert!(replayed.stdout.contains("Replayed: 0 letters."), "{replayed:?}");

    deployment.write("{ hr-import: { renamed-from: import }, mail: {} }");
    for named in ["import", "hr-import"] {
        let one = listed(&["--type", named]);
        assert!(one.stdout.contains("hr-import") && one.stdout.contains("1 letter, 1 reason"), "{one:?}");
        assert!(one.stderr.is_empty(), "{one:?}");
    }
    deployment.run(0, &["dead-letter", "discard", "--type", "import", "--save", "letters.ndjson", "--yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_of_a_removed_source_are_listed_and_can_be_discarded() {
    let sources = "sources: { till: { declare: on, events: [ { type: mail } ] } }";
    let deployment = Deployment::new(&format!("{{ mail: {{}} }}\n{sources}"));
    let queue = "billing.dead-letter.source-till";
    Amqp::connect(&deployment.bench.host.amqp()).await.publish("", queue, BasicProperties::default(), b"7").await;
    deployment.write("{ mail: {} }");
    deployment.run(0, &["apply", "--auto-approve"]);
    for arguments in [&["list"][..], &["list", "--type", "source-till"]] {
        let json = deployment.run(0, &[&["dead-letter", "-o", "json"], arguments].concat()).json();
        let read = json["queues"].as_array().unwrap().iter().find(|read| read["queue"] == queue);
        assert_eq!((&json["found"], &read.unwrap()["letters"]), (&1.into(), &1.into()), "{json:#}");
    }
    let discard = ["discard", "--type", "source-till", "--save", "letters.ndjson", "--yes"];
    let discarded = deployment.run(0, &[&["dead-letter"], &discard[..]].concat());
    assert!(discarded.stdout.contains("Discarded: 1 letter"), "{discarded:?}");
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

#[tokio::test]
async fn a_destroyed_topology_leaves_no_key_in_redis_for_ever() {
    let deployment = Deployment::new("{ import: { coalesce: latest }, mail: {} }");
    for (name, reference) in [("import", "1"), ("mail", "2"), ("mail", "3")] {
        deployment.run(0, &["publish", name, "--reference", reference, "--delay", "1h"]);
    }
    let lasting = async || {
        let mut connection = redis::connect(redis::url()).await.unwrap();
        let keys: Vec<String> = connection.keys(format!("{}:*", deployment.prefix)).await.unwrap();
        let mut lasting = Vec::new();
        for key in keys {
            let left: i64 = connection.pttl(&key).await.unwrap();
            lasting.extend((left == -1).then_some(key));
        }
        lasting
    };
    // Three counters. The index of a type without traffic expires.
    let before = lasting().await;
    assert!(before.iter().all(|key| key.ends_with(":last")) && before.len() == 3, "{before:?}");
    let mut connection = redis::connect(redis::url()).await.unwrap();
    let keys: Vec<String> = connection.keys(format!("{}:*:mail:x", deployment.prefix)).await.unwrap();
    let base = keys[0].strip_suffix("mail:x").unwrap();
    for states in ["schedules", "breakers"] {
        let () = connection.hset(format!("{base}{states}"), "mail", "a state").await.unwrap();
    }
    deployment.run(0, &["destroy", "--auto-approve", "--force"]);
    assert_eq!(lasting().await, Vec::<String>::new());
    // An index that an older version has made lasts as long as its last event.
    deployment.run(0, &["apply", "--auto-approve"]);
    deployment.run(0, &["publish", "mail", "--reference", "2", "--delay", "2h"]);
    let keys: Vec<String> = connection.keys(format!("{}:*:mail:x", deployment.prefix)).await.unwrap();
    let index = keys.into_iter().next().expect("an index");
    let year = 366 * 24 * 3_600_000_i64;
    let () = connection.persist(&index).await.unwrap();
    let due = jiff::Timestamp::now().as_millisecond() + year;
    let () = connection.zadd(&index, "i:late\0e", due).await.unwrap();
    deployment.run(0, &["publish", "mail", "--reference", "2", "--delay", "1h"]);
    let left: i64 = connection.pttl(&index).await.unwrap();
    assert!(left > year, "{left}");
}

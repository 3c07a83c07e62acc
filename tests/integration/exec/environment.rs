//! The line that a worker logs at its start, and the variables that it passes on to its programs.

use hatchery::NewEvent;
use serde_json::Value;

use crate::support::{
    broker::PASSWORD,
    declared::{Declared, publish},
    process::Place,
};

const VARIABLES: [&str; 6] = [
    "AMQP_URL",
    "AMQP_URL_FILE",
    "REDIS_URL",
    "REDIS_URL_FILE",
    "RABBITMQ_MANAGEMENT_URL",
    "RABBITMQ_MANAGEMENT_URL_FILE",
];

/// Returns the variables with URLs of servers, as a program saw them that a worker with these options ran.
async fn told(place: &Place<'_>, options: &[&str]) -> Vec<String> {
    let hatchery = place.declared.connect().await;
    publish(&hatchery, NewEvent::new("job", "env | grep -E '_URL(_FILE)?=' | cut -d= -f1 | sort > told; true")).await;
    let redis_url = place.write("redis-url", &place.declared.redis_url);
    let work = ["work", "--type", "job", "--stop-when-empty"];
    let mut command = place.command(&[&work, options, &["--exec", "sh"]].concat());
    // For each server one variable is empty, which counts as not set.
    command
        .env("AMQP_URL_FILE", "")
        .env("REDIS_URL", "")
        .env("REDIS_URL_FILE", redis_url)
        .env("RABBITMQ_MANAGEMENT_URL", "http://guest:secret@localhost:15672")
        .env("RABBITMQ_MANAGEMENT_URL_FILE", "");
    place.run(&mut command).await.expect(0);
    place.lines("told")
}

#[tokio::test]
async fn a_program_gets_no_server_url_without_pass_urls() {
    let declared = Declared::new("types: { job: {} }").await;
    let place = Place::new(&declared);
    assert_eq!(told(&place, &[]).await, [""; 0]);
    let mut all = VARIABLES.map(str::to_owned);
    all.sort();
    let mut seen = told(&place, &["--pass-urls"]).await;
    seen.sort();
    assert_eq!(seen, all);
}

#[tokio::test]
async fn the_options_of_a_worker_may_be_environment_variables_and_its_log_json() {
    let declared = Declared::new("types: { job: {}, mail: {} }").await;
    let place = Place::new(&declared);
    let worker = || {
        let mut command = place.command(&["work", "--exec", "true"]);
        command.env("TOPOLOGY_TYPE", "job,mail").env("TOPOLOGY_STOP_WHEN_EMPTY", "1");
        command
    };
    let mut command = worker();
    command.env("TOPOLOGY_CONCURRENCY", "7").env("TOPOLOGY_LOG_FORMAT", "json");
    let ended = place.run(command.env("TOPOLOGY_LISTEN", "").env("TOPOLOGY_HTTP", "")).await.expect(0);
    let lines = ended.stderr.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let starts: Vec<Value> = lines.filter(|line| line["message"] == "worker starts").collect();
    assert_eq!(starts.len(), 1, "{ended:?}");
    assert_eq!(starts[0]["types"], "job (concurrency 7), mail (concurrency 7)");
    assert_eq!(starts[0]["level"], "INFO");
    let mut command = worker();
    let ended = place.run(command.env("TOPOLOGY_LISTEN", format!("http://u:{PASSWORD}@h"))).await.expect(2);
    assert!(ended.stderr.contains("--listen") && !ended.stderr.contains(PASSWORD), "{ended:?}");
}

#[tokio::test]
async fn a_worker_logs_its_version_file_types_and_broker_at_its_start() {
    let declared = Declared::new("types: { job: { concurrency: 3, prefetch: 30 }, mail: { on-failure: block } }").await;
    let place = Place::new(&declared);
    let work = ["work", "--type", "job", "--type", "mail", "--stop-when-empty", "--exec", "true"];
    let ended = place.run(&mut place.command(&work)).await.expect(0);
    let log: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("worker starts")).collect();
    let [line] = log[..] else { panic!("not one line `worker starts`: {ended:?}") };
    let types = "job (concurrency 3), mail (concurrency 1)";
    for part in [env!("CARGO_PKG_VERSION"), "topology.yaml", types, "amqp://", &declared.host.name] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(line.contains(" INFO ") && !line.contains(PASSWORD), "{line}");
    let ended = place.run(&mut place.command(&[&work[..6], &["--concurrency", "7", "--exec", "true"]].concat())).await;
    assert!(ended.stderr.contains("job (concurrency 7)") && ended.stderr.contains("mail (concurrency 1)"), "{ended:?}");
}

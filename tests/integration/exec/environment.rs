//! The log of a worker at its start and about the runs of its programs, with their output, and the variables that it passes on to
//! them.

use std::fs;

use hatchery::NewEvent;
use rstest::rstest;
use serde_json::Value;

use crate::support::{
    amqp::shown,
    broker::{PASSWORD, eventually},
    declared::{Declared, publish},
    process::{Ended, Place, Process},
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

const JOB: &str = "types: { job: { handler-timeout: 2s, retry: { delays: [50ms], max-attempts: 2 } } }";

/// Works off what waits, with `sh` as the program and the payload as its script. The log is the standard error.
async fn work(place: &Place<'_>, arguments: &[&str]) -> Ended {
    let arguments = [&["-o", "json"], arguments, &["work", "--type", "job", "--stop-when-empty"]].concat();
    let mut command = place.command(&arguments);
    command.args(["--exec", "sh"]);
    Process::spawn(command).ended().await.expect(0)
}

/// Returns the lines of a log with all of these texts.
fn with<'a>(log: &'a str, texts: &[&str]) -> Vec<&'a str> {
    log.lines().filter(|line| texts.iter().all(|text| line.contains(text))).collect()
}

#[tokio::test]
async fn a_programs_output_is_logged_line_by_line_with_type_and_id() {
    let declared = Declared::new(JOB).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let script = "echo one; printf 'two\\033[31m\\n' >&2; echo '{\"discard\": {\"reason\": \"left\"}}'";
    publish(&hatchery, NewEvent::new("job", script).id("some-id")).await;
    let log = work(&place, &[]).await.stderr;
    assert_eq!(with(&log, &["INFO", "event_type=job id=some-id stdout=one"]).len(), 1, "{log}");
    assert_eq!(with(&log, &["INFO", "event_type=job id=some-id stderr=two\\u{1b}[31m"]).len(), 1, "{log}");
    assert_eq!(with(&log, &["INFO", "discarded by its handler: left event_type=job id=some-id in="]).len(), 1, "{log}");
}

#[tokio::test]
async fn a_failure_tells_which_attempt_it_was_why_and_when_the_next_one_comes() {
    let declared = Declared::new(JOB).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let worker = place.worker("job", &place.write("handler.sh", "echo 'KeyError: name' >&2; exit 1"));
    let worker = Process::spawn(worker);
    publish(&hatchery, NewEvent::new("job", "").id("some-id")).await;
    let letter = declared.amqp().await.take(&declared.dead_letters("job")).await;
    worker.stop().await;
    let log = place.lines("log").join("\n");
    let first = "attempt 1 of 2 failed, retrying in 50ms: KeyError: name event_type=job id=some-id in=";
    assert_eq!(with(&log, &["INFO", first]).len(), 1, "{log}");
    let reason = shown(&letter, "reason").unwrap();
    assert_eq!(with(&log, &["WARN", &format!("event dead-lettered: {reason}"), "in="]).len(), 1, "{log}");
}

#[rstest]
#[case::by_default(&[], 0)]
#[case::for_debugging(&["-v"], 1)]
#[tokio::test]
async fn a_success_has_a_line_of_its_own_only_for_debugging(#[case] arguments: &[&str], #[case] lines: usize) {
    let declared = Declared::new(JOB).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    publish(&hatchery, NewEvent::new("job", "true").id("some-id")).await;
    let log = work(&place, arguments).await.stderr;
    assert_eq!(with(&log, &["DEBUG", "done event_type=job id=some-id in="]).len(), lines, "{log}");
}

#[tokio::test]
async fn of_output_that_is_discarded_the_end_is_logged_if_the_run_fails() {
    let declared =
        Declared::new("types: { job: { handler-timeout: 1s, retry: { delays: [50ms], max-attempts: 1 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    publish(&hatchery, NewEvent::new("job", "echo well").id("well")).await;
    publish(&hatchery, NewEvent::new("job", "seq 30 >&2; echo on line 7 >&2; sleep 600").id("slow")).await;
    let mut command = place.command(&["-o", "json", "work", "--type", "job", "--handler-output", "discard"]);
    command.args(["--exec", "sh"]).stderr(fs::File::create(place.path("log")).unwrap());
    let worker = Process::spawn(command);
    declared.amqp().await.take(&declared.dead_letters("job")).await;
    eventually("both have run", async || {
        place.lines("log").iter().any(|line| line.contains("event dead-lettered")).then_some(())
    })
    .await;
    worker.stop().await;
    let log = place.lines("log").join("\n");
    assert_eq!(with(&log, &["id=slow stderr=on line 7"]).len(), 1, "the time limit kills it: {log}");
    assert_eq!(with(&log, &["id=slow", "11 lines of the program's output left out"]).len(), 1, "{log}");
    assert_eq!(with(&log, &["stdout="]).len(), 0, "{log}");
}

#[tokio::test]
async fn output_that_is_inherited_is_that_of_the_worker() {
    let declared = Declared::new(JOB).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    publish(&hatchery, NewEvent::new("job", "echo one; echo two >&2")).await;
    let mut command = place.command(&["work", "--type", "job", "--stop-when-empty", "--handler-output", "inherit"]);
    command.args(["--exec", "sh"]);
    let ended = Process::spawn(command).ended().await.expect(0);
    assert_eq!(ended.stdout, "one\n1 done\n");
    assert!(ended.stderr.lines().any(|line| line == "two"), "{ended:?}");
    assert!(with(&ended.stderr, &["stdout="]).is_empty() && with(&ended.stderr, &["stderr="]).is_empty(), "{ended:?}");
}

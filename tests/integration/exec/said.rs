//! The output of a program, and the lines of the log about its runs.

use std::fs;

use hatchery::NewEvent;
use rstest::rstest;

use crate::support::{
    amqp::shown,
    broker::eventually,
    declared::{Declared, publish},
    process::{Ended, Place, Process},
};

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
async fn a_long_output_is_cut_and_a_failure_still_shows_its_end() {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 1 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    publish(&hatchery, NewEvent::new("job", "for n in $(seq 1000); do echo $n; done; exit 1")).await;
    let log = work(&place, &[]).await.stderr;
    assert_eq!(with(&log, &["stdout="]).len(), 120, "{log}");
    assert_eq!(with(&log, &["880 lines of the program's output left out"]).len(), 1, "{log}");
    assert!(with(&log, &["stdout="])[119].ends_with("stdout=1000"), "{log}");
}

#[tokio::test]
async fn output_that_is_discarded_is_logged_only_for_a_run_that_fails() {
    let declared =
        Declared::new("types: { job: { handler-timeout: 1s, retry: { delays: [50ms], max-attempts: 1 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    publish(&hatchery, NewEvent::new("job", "echo well").id("well")).await;
    publish(&hatchery, NewEvent::new("job", "echo on line 7 >&2; sleep 600").id("slow")).await;
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

//! Programs that are slow, write much, leave children behind, or do not exist.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use hatchery::NewEvent;
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    amqp::shown,
    broker::eventually,
    declared::{Declared, publish},
    process::{Place, Process, is_running},
};

const JOB: &str = "types: { job: { lease: 500ms, retry: { delays: [50ms], max-attempts: 1 } } }";

#[tokio::test]
async fn a_handler_timeout_kills_a_program_and_its_children() {
    let declared =
        Declared::new("types: { job: { handler-timeout: 500ms, retry: { delays: [50ms], max-attempts: 1 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let script = place.write("handler.sh", "sleep 600 & echo $$ $! > processes; trap '' TERM; sleep 600");
    publish(&hatchery, NewEvent::new("job", "")).await;
    let worker = Process::spawn(place.worker("job", &script));
    let letter = declared.amqp().await.take(&declared.dead_letters("job")).await;
    let reason = shown(&letter, "reason").unwrap();
    assert!(reason.ends_with("error=\"no answer within handler-timeout (500ms)\""), "{reason}");
    let processes = place.lines("processes").concat();
    assert_eq!(processes.split(' ').count(), 2);
    eventually("both processes have ended", async || (!processes.split(' ').any(is_running)).then_some(())).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_whose_program_is_missing_fails_before_the_first_delivery() {
    let declared = Declared::new(JOB).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    publish(&hatchery, NewEvent::new("job", "")).await;
    for (program, why) in [
        ("no-such-program", "is in no directory of PATH; write `./` before a file that is here"),
        ("./no-such-program", "does not exist"),
        ("./topology.yaml", "is not executable; run `chmod +x ./topology.yaml`"),
        ("/", "is a directory"),
    ] {
        let ended = place.run(&mut place.command(&["work", "--type", "job", "--exec", program])).await;
        assert_eq!(ended.expect(1).stderr, format!("error: the program `{program}` {why}\n"));
    }
    let message = declared.amqp().await.take(&declared.processing("job")).await;
    assert!(!message.redelivered, "the event was delivered to a worker without a program");
}

/// One attempt is all that an event has, so each that was counted as failed would be dead.
#[rstest]
#[case::claimed("retry: { delays: [50ms], max-attempts: 1 }")]
#[case::unregistered("register: off, retry: { delays: [50ms], max-attempts: 1 }")]
#[case::in_order("on-failure: block, retry: { delays: [50ms] }")]
#[tokio::test]
async fn events_whose_program_is_removed_wait_spend_no_attempt_and_run_once_when_it_is_put_back(#[case] job: &str) {
    const EVENTS: usize = 10;
    let declared = Declared::new(&format!("types: {{ job: {{ {job} }} }}")).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let (script, program) =
        (place.write("script", "#!/bin/sh\necho $(cat) $EVENT_ATTEMPTS >> runs\n"), place.path("program"));
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    symlink(&script, &program).unwrap();
    let mut command = place.command(&["-o", "json", "-v", "work", "--type", "job", "--exec", "./program"]);
    command.stderr(fs::File::create(place.path("log")).unwrap());
    let worker = Process::spawn(command);
    publish(&hatchery, NewEvent::new("job", "0")).await;
    eventually("the first event is handled", async || (place.lines("runs").len() == 1).then_some(())).await;

    fs::remove_file(&program).unwrap();
    for n in 1..EVENTS {
        publish(&hatchery, NewEvent::new("job", n.to_string())).await;
    }
    let lines = |what: &str| place.lines("log").into_iter().filter(|line| line.contains(what)).collect::<Vec<_>>();
    eventually("the worker has tried three times", async || (lines("unavailable").len() >= 3).then_some(())).await;
    symlink(&script, &program).unwrap();
    eventually("all events are handled", async || (place.lines("runs").len() == EVENTS).then_some(())).await;
    let summary = worker.stop().await;
    assert_eq!((&summary["done"], &summary["dead_lettered"]), (&EVENTS.into(), &0.into()), "{summary}");
    let (runs, all) = (place.lines("runs"), (0..EVENTS).map(|n| format!("{n} 0")).collect::<Vec<_>>());
    if job.contains("block") {
        assert_eq!(runs, all);
    } else {
        assert_eq!(runs.iter().collect::<BTreeSet<_>>(), all.iter().collect());
    }
    let said = lines("the handler is unavailable; its events wait");
    assert!(said.len() == 1 && said[0].contains("program: No such file or directory"), "{said:?}");
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
#[ignore = "waits while no file can be opened; scripts/test --all runs it"]
async fn a_program_that_lacks_open_files_waits_without_spending_an_attempt() {
    let types = "claimed: {}, plain: { register: off }";
    let defaults = "defaults: { handler-timeout: 1s, retry: { delays: [50ms], max-attempts: 1 } }";
    let declared = Declared::new(&format!("{defaults}\ntypes: {{ {types} }}")).await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    for event_type in ["claimed", "plain"] {
        let place = Place::new(&declared);
        let script = place.write("handler.sh", "echo $EVENT_ATTEMPTS >> runs");
        let worker = Process::spawn(place.worker(event_type, &script));
        publish(&hatchery, NewEvent::new(event_type, "first")).await;
        eventually("the first event has run", async || (place.lines("runs").len() == 1).then_some(())).await;
        let before = worker.limit_files(Some(3));
        publish(&hatchery, NewEvent::new(event_type, "second")).await;
        let tries = || place.lines("log").iter().filter(|line| line.contains("unavailable")).count();
        eventually("the worker has tried to start the handler four times", async || (tries() >= 4).then_some(())).await;
        worker.limit_files(before);
        eventually("the program runs", async || (place.lines("runs").len() == 2).then_some(())).await;
        assert_eq!(place.lines("runs"), ["0", "0"]);
        let summary = worker.stop().await;
        assert_eq!((&summary["done"], &summary["dead_lettered"]), (&2.into(), &0.into()), "{summary}");
        assert!(amqp.filled(&declared.queues()).await.is_empty());
    }
}

#[tokio::test]
async fn a_program_may_end_without_reading_a_large_payload() {
    let declared = Declared::new(JOB).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    publish(&hatchery, NewEvent::new("job", vec![b'x'; 8 << 20])).await;
    let command = place.command(&["-o", "json", "work", "--type", "job", "--exec", "true", "--stop-when-empty"]);
    let ended = Process::spawn(command).ended().await.expect(0);
    assert!(ended.summary()["done"] == 1, "{ended:?}");
}

#[tokio::test]
#[ignore = "reads 20 MB from a program; scripts/test --all runs it"]
async fn a_program_may_write_20_megabytes_before_its_answer() {
    let declared = Declared::new(JOB).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let script = "yes 'much to say' | head -c 20000000 | tee /dev/stderr; echo; echo '{\"discard\": {}}'";
    publish(&hatchery, NewEvent::new("job", script)).await;
    let command = place.command(&["-o", "json", "work", "--type", "job", "--exec", "sh", "--stop-when-empty"]);
    let ended = Process::spawn(command).ended().await.expect(0);
    assert!(ended.summary()["discarded"] == 1, "{ended:?}");
}

#[tokio::test]
async fn children_left_by_a_program_are_killed_and_do_not_delay_its_answer() {
    let declared = Declared::new(JOB).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let script = "sleep 600 & echo $! > child; sleep 600 >/dev/null 2>&1 & echo $! >> child; echo '{\"discard\": {}}'";
    publish(&hatchery, NewEvent::new("job", script)).await;
    let command = place.command(&["-o", "json", "work", "--type", "job", "--exec", "sh", "--stop-when-empty"]);
    let ended = Process::spawn(command).ended().await.expect(0);
    assert!(ended.summary()["discarded"] == 1, "{ended:?}");
    let children = place.lines("child");
    assert_eq!(children.len(), 2);
    eventually("both children have ended", async || (!children.iter().any(|child| is_running(child))).then_some(()))
        .await;
}

#[tokio::test]
async fn a_child_that_leaves_the_programs_process_group_lives_on_and_is_not_waited_for() {
    let declared = Declared::new(JOB).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let script = "setsid sh -c 'echo $$ > child; exec sleep 600' & while ! [ -s child ]; do sleep 0.01; done
                  echo '{\"discard\": {}}'";
    publish(&hatchery, NewEvent::new("job", script)).await;
    let command = place.command(&["-o", "json", "work", "--type", "job", "--exec", "sh", "--stop-when-empty"]);
    let ended = Process::spawn(command).ended().await.expect(0);
    assert!(ended.summary()["discarded"] == 1, "{ended:?}");
    let child = place.lines("child").concat();
    assert!(is_running(&child), "the child that left the process group was killed");
    kill_process(Pid::from_raw(child.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_program_that_outlives_its_worker_still_reads_the_whole_payload() {
    let declared = Declared::new(JOB).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    publish(&hatchery, NewEvent::new("job", vec![b'x'; 1 << 20])).await;
    let script = place.write("handler.sh", "kill -9 $PPID; while kill -0 $PPID 2>/dev/null; do :; done; wc -c > size");
    let ended = Process::spawn(place.worker("job", &script)).ended().await;
    assert!(ended.killed(), "{ended:?}");
    let size = eventually("the program has read the payload", async || place.lines("size").into_iter().next()).await;
    assert_eq!(size.trim(), (1 << 20).to_string());
}

#[tokio::test]
async fn a_drain_timeout_kills_a_program_and_its_children_and_gives_the_event_back() {
    let declared = Declared::new(JOB).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    publish(&hatchery, NewEvent::new("job", "")).await;
    let script = place.write("handler.sh", "sleep 600 & echo $$ $! > processes; trap '' TERM; sleep 600");
    let mut command =
        place.command(&["-o", "json", "work", "--type", "job", "--drain-timeout", "100ms", "--exec", "sh"]);
    command.arg(script);
    let worker = Process::spawn(command);
    let processes = eventually("the program runs", async || place.lines("processes").into_iter().next()).await;
    assert_eq!(worker.stop().await["given_back"], 1);
    eventually("both processes have ended", async || (!processes.split(' ').any(is_running)).then_some(())).await;
    let amqp = declared.amqp().await;
    let back = amqp.take(&declared.processing("job")).await;
    assert_eq!(shown(&back, "attempts").as_deref(), Some("0"));
}

#[tokio::test]
async fn a_first_signal_lets_a_program_finish_and_a_second_one_kills_it() {
    let declared = Declared::new("types: { job: { prefetch: 2, concurrency: 1, lease: 500ms } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    for _ in 0..3 {
        publish(&hatchery, NewEvent::new("job", "")).await;
    }
    let script = "sleep 600 & echo $! >> processes; echo $$ >> processes; echo x >> runs
                  while ! [ -e go ]; do sleep 0.05; done";
    let script = place.write("handler.sh", script);
    let amqp = declared.amqp().await;
    let queue = declared.processing("job");

    let hasty = Process::spawn(place.worker("job", &script));
    eventually("the program runs", async || (place.lines("runs").len() == 1).then_some(())).await;
    hasty.signal(Signal::INT);
    eventually("the prefetched event is given back", async || (amqp.ready(&queue).await == 2).then_some(())).await;
    // A signal within half a second of the first counts as the same one, so the signal is repeated.
    hasty.ended_by(Signal::INT).await.expect(1);
    let processes = place.lines("processes");
    assert_eq!(processes.len(), 2);
    eventually("the program and its children have ended", async || {
        (!processes.iter().any(|one| is_running(one))).then_some(())
    })
    .await;
    eventually("all three events are in the queue", async || (amqp.ready(&queue).await == 3).then_some(())).await;

    let worker = Process::spawn(place.worker("job", &script));
    eventually("the program runs", async || (place.lines("runs").len() == 2).then_some(())).await;
    worker.signal(Signal::TERM);
    place.write("go", "");
    let ended = worker.ended().await.expect(0);
    assert!(ended.summary()["done"] == 1, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_of_an_unknown_type_does_not_connect() {
    let declared = Declared::new("types: { job: {} }").await;
    let place = Place::new(&declared);
    let line = ["work", "--type", "jobs", "--type", "job", "--exec", "true", "--amqp-url", "amqp://127.0.0.1:1"];
    let ended = place.run(&mut place.command(&line)).await.expect(1);
    assert!(ended.stderr.contains("there is no type `jobs` in the file; is it `job`?"), "{ended:?}");
    assert!(!ended.stderr.contains("worker starts"), "{ended:?}");
}

//! A worker that has run thousands of programs has leaked no process and no open file.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    time::{Duration, Instant},
};

use hatchery::NewEvent;
use tokio::process::Command;

use crate::support::{
    broker::eventually,
    declared::Declared,
    process::{Place, Process},
};

/// A variable that marks a worker and all processes that descend from it.
const MARK: &str = "HATCHERY_TEST_MARK";

fn open_files(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// Returns the children of a process that run or wait to be reaped.
fn children(process: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let all: String = tasks.map(|task| of(task.unwrap())).collect();
    all.split_whitespace().map(str::to_owned).collect()
}

/// Returns all processes with this mark, whichever process is their parent now.
fn marked(mark: &str) -> Vec<String> {
    let mark = format!("{MARK}={mark}");
    let has = |environment: Vec<u8>| environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
    let ours = processes.filter(|entry| fs::read(entry.path().join("environ")).is_ok_and(has));
    ours.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Returns a command whose process adopts orphans among its descendants, as the first process of a container does.
fn like_init(place: &Place<'_>, command: &Command) -> Command {
    let subreaper = "import ctypes, os, sys; assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])";
    let mut init = place.program("python3");
    let log = fs::File::options().create(true).append(true).open(place.path("log")).unwrap();
    init.args(["-c", subreaper]).arg(command.as_std().get_program()).args(command.as_std().get_args()).stderr(log);
    init
}

#[tokio::test]
#[ignore = "runs 2,040 programs; scripts/test --all runs it"]
async fn thousands_of_programs_leave_no_process_and_no_open_file_behind() {
    let limits = "handler-timeout: 2s, retry: { delays: [50ms], max-attempts: 5 }";
    let declared = Declared::new(&format!("types: {{ job: {{ prefetch: 40, concurrency: 16, {limits} }} }}")).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    // Some programs leave children behind that run for long or hold the output open for a moment. Some fail, some write
    // much. Some do not end within the time limit, and neither do their children.
    let script = place.write(
        "handler.sh",
        "n=$(cat)
         case $n in
         *0) sleep 600 >/dev/null 2>&1 & ;;
         *55) [ $EVENT_ATTEMPTS != 0 ] || { sleep 600 & sleep 600; } ;;
         *7) [ $EVENT_ATTEMPTS != 0 ] || exit 1 ;;
         *8) true & ;;
         *9) head -c 200000 /dev/zero ;;
         esac
         echo $n >> runs",
    );
    let mut command = like_init(&place, &place.worker("job", &script));
    command.env(MARK, &declared.host.name);
    let worker = Process::spawn(command);
    let publish = async |from: usize, to: usize| {
        let events = (from..to).map(|n| NewEvent::new("job", n.to_string())).collect();
        assert!(hatchery.publisher().publish_batch(events).await.iter().all(Result::is_ok));
        let ran = || place.lines("runs").into_iter().collect::<BTreeSet<_>>().len();
        eventually("all programs have run", async || (ran() == to).then_some(())).await;
        eventually("the worker has no child left", async || children(worker.id()).is_empty().then_some(())).await;
    };
    publish(0, 40).await;
    let before = open_files(worker.id());
    let start = Instant::now();
    for from in (40..2_040).step_by(500) {
        publish(from, from + 500).await;
    }
    let took: Duration = start.elapsed();
    eventually("the worker has no more open files than before", async || {
        (open_files(worker.id()) <= before).then_some(())
    })
    .await;
    let itself = vec![worker.id().to_string()];
    eventually("no process but the worker is left", async || (marked(&declared.host.name) == itself).then_some(()))
        .await;
    // Not by `eprintln!`, which prints nothing when the test passes.
    let rate = 2_000.0 / took.as_secs_f64();
    let _ = writeln!(std::io::stderr(), "2,000 programs in {took:.1?} ({rate:.0} a second), {before} files open");
    let summary = worker.stop().await;
    assert_eq!((&summary["done"], &summary["dead_lettered"]), (&2_040.into(), &0.into()), "{summary}");
    assert!(summary["retried"].as_u64().unwrap() >= 200, "{summary}");
    assert!(marked(&declared.host.name).is_empty());
}

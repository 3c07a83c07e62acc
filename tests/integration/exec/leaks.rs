//! A worker that has run many programs is as it was.

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

/// In the environment of a worker and of all that comes from it.
const MARK: &str = "HATCHERY_TEST_MARK";

fn open_files(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// Children that run or wait to be reaped.
fn children(process: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let all: String = tasks.map(|task| of(task.unwrap())).collect();
    all.split_whitespace().map(str::to_owned).collect()
}

/// All processes with this mark, whoever is their parent by now.
fn marked(mark: &str) -> Vec<String> {
    let mark = format!("{MARK}={mark}");
    let has = |environment: Vec<u8>| environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes());
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
    let ours = processes.filter(|entry| fs::read(entry.path().join("environ")).is_ok_and(has));
    ours.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// A command whose process becomes the parent of orphans among its descendants, as the first one of a container does.
fn like_init(place: &Place<'_>, command: &Command) -> Command {
    let subreaper = "import ctypes, os, sys; assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])";
    let mut init = place.program("python3");
    let log = fs::File::options().create(true).append(true).open(place.path("log")).unwrap();
    init.args(["-c", subreaper]).arg(command.as_std().get_program()).args(command.as_std().get_args()).stderr(log);
    init
}

#[tokio::test]
#[ignore = "takes long; scripts/test --all runs it"]
async fn thousands_of_programs_leave_no_process_and_no_open_file_behind() {
    let limits = "handler-timeout: 2s, retry: { delays: [50ms], max-attempts: 5 }";
    let declared = Declared::new(&format!("types: {{ job: {{ prefetch: 40, concurrency: 16, {limits} }} }}")).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    // Some leave children behind that run for long, or hold the output open for a moment; some fail, some write much,
    // some do not end within the time limit, and their children neither.
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
        eventually("all have run", async || (ran() == to).then_some(())).await;
        eventually("no child is left", async || children(worker.id()).is_empty().then_some(())).await;
    };
    publish(0, 40).await;
    let before = open_files(worker.id());
    let start = Instant::now();
    for from in (40..2_040).step_by(500) {
        publish(from, from + 500).await;
    }
    let took: Duration = start.elapsed();
    eventually("no more files are open than before", async || (open_files(worker.id()) <= before).then_some(())).await;
    let itself = vec![worker.id().to_string()];
    eventually("nothing else is left", async || (marked(&declared.host.name) == itself).then_some(())).await;
    // Not by `eprintln!`, which says nothing when the test passes.
    let rate = 2_000.0 / took.as_secs_f64();
    let _ = writeln!(std::io::stderr(), "2,000 programs in {took:.1?} ({rate:.0} a second), {before} files open");
    let summary = worker.stop().await;
    assert_eq!((&summary["done"], &summary["dead_lettered"]), (&2_040.into(), &0.into()), "{summary}");
    assert!(summary["retried"].as_u64().unwrap() >= 200, "{summary}");
    assert!(marked(&declared.host.name).is_empty());
}

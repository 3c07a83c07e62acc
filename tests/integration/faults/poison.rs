//! One event among many kills its worker each time that it runs (`kill -9` from the handler). Only this event is
//! dead-lettered.
//!
//! The workers are processes of this test binary, because a program for each of ten thousand events would take too
//! long. `HATCHERY_POISON` sets another number of events.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Write as _},
    os::unix::process::ExitStatusExt as _,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use hatchery::{CancellationToken, NewEvent, Outcome, Run};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tempfile::TempDir;
use tokio::{
    process::Command,
    signal::unix::{SignalKind, signal},
};

use crate::support::{
    amqp::{Amqp, header, shown},
    declared::Declared,
};

const LIMIT: usize = 5;
const CULPRIT: &str = "culprit";
/// So many culprits that their kills would reach RabbitMQ's delivery limit if each kill counted against all events that
/// the worker holds.
const CROWD: usize = 40;
/// The time limit for handling all events.
const LONGEST: Duration = Duration::from_mins(5);

/// Returns the number of events of a test.
fn events() -> usize {
    std::env::var("HATCHERY_POISON").map_or(10_000, |text| text.parse().unwrap())
}

/// The variables that a worker process gets.
const FOLDER: &str = "HATCHERY_POISON_FOLDER";
const BROKER: &str = "HATCHERY_POISON_AMQP_URL";
const REDIS: &str = "HATCHERY_POISON_REDIS_URL";

#[tokio::test]
#[ignore = "passes at once: the other tests here start it as their worker process"]
async fn worker() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let url = |name: &str| std::env::var(name).unwrap();
    let topology = hatchery::read_file(format!("{folder}/topology.yaml")).unwrap();
    let hatchery =
        hatchery::Hatchery::builder(topology).amqp_url(url(BROKER)).redis_url(url(REDIS)).connect().await.unwrap();
    let runs = Arc::new(File::options().append(true).create(true).open(format!("{folder}/runs")).unwrap());
    let handler = move |run: Run| {
        let runs = Arc::clone(&runs);
        async move {
            let payload = String::from_utf8_lossy(&run.event.payload).into_owned();
            // One write for each line, because the workers append to the same file.
            (&*runs).write_all(format!("begin {} {payload}\n", std::process::id()).as_bytes())?;
            // Long enough that other events begin and end meanwhile.
            tokio::time::sleep(Duration::from_millis(2)).await;
            if payload.starts_with(CULPRIT) {
                let _ = kill_process(getpid(), Signal::KILL);
                std::future::pending::<()>().await;
            }
            (&*runs).write_all(format!("end {} {payload}\n", std::process::id()).as_bytes())?;
            Ok::<_, io::Error>(Outcome::Done)
        }
    };
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    let told = stop.clone();
    tokio::spawn(async move {
        terminate.recv().await;
        told.cancel();
    });
    hatchery.worker().handle("work", handler).run(stop).await.unwrap();
}

struct Poisoned {
    declared: Declared,
    folder: TempDir,
    events: usize,
    culprits: usize,
    spec: &'static str,
}

impl Poisoned {
    /// Publishes events with the culprits among them, as far from each other and from both ends as possible.
    async fn new(spec: &'static str, events: usize, culprits: usize) -> Self {
        let every = events / (culprits + 1);
        Self::with(spec, events, culprits, |n| (n > 0 && n % every == 0 && n / every <= culprits).then(|| n / every))
            .await
    }

    /// Publishes events with the culprits one after the other, behind a few others.
    async fn crowded(spec: &'static str, events: usize, culprits: usize) -> Self {
        Self::with(spec, events, culprits, |n| n.checked_sub(5).filter(|n| *n < culprits).map(|n| n + 1)).await
    }

    async fn with(
        spec: &'static str,
        events: usize,
        culprits: usize,
        culprit: impl Fn(usize) -> Option<usize>,
    ) -> Self {
        let declared = Declared::new(&format!(
            "types: {{ work: {{ prefetch: 200, concurrency: 16, crash-limit: {LIMIT}, {spec} }} }}\n"
        ))
        .await;
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("topology.yaml"), &declared.text).unwrap();
        let payload = |n: usize| match culprit(n) {
            Some(culprit) => format!("{CULPRIT}-{culprit}"),
            None => n.to_string(),
        };
        let hatchery = declared.connect().await;
        let batch = (0..events).map(|n| NewEvent::new("work", payload(n))).collect();
        assert!(hatchery.publisher().publish_batch(batch).await.iter().all(Result::is_ok));
        Self { declared, folder, events, culprits, spec }
    }

    /// Runs a pod: a worker that is started again whenever it is killed, until `until` is cancelled. Returns the number
    /// of kills.
    async fn pod(&self, until: &CancellationToken) -> usize {
        let mut kills = 0;
        loop {
            let mut worker = Command::new(std::env::current_exe().unwrap());
            worker
                .args(["--exact", "faults::poison::worker", "--ignored", "--nocapture"])
                .env(FOLDER, self.folder.path())
                .env(BROKER, self.declared.host.amqp())
                .env(REDIS, &self.declared.redis_url)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .kill_on_drop(true);
            let mut worker = worker.spawn().unwrap();
            let id =
                worker.id().and_then(|id| Pid::from_raw(id.try_into().unwrap())).expect("the worker has ended already");
            let ended = tokio::select! {
                ended = worker.wait() => ended.unwrap(),
                () = until.cancelled() => {
                    kill_process(id, Signal::TERM).unwrap();
                    worker.wait().await.unwrap()
                }
            };
            match ended.signal() {
                Some(9) => kills += 1,
                _ if ended.success() => return kills,
                _ => panic!("{ended:?}"),
            }
        }
    }

    fn runs(&self) -> String {
        fs::read_to_string(self.folder.path().join("runs")).unwrap_or_default()
    }

    /// Runs this many pods until all events are handled, and asserts that only the culprits are dead-lettered.
    async fn works(&self, pods: usize) {
        let (begun, amqp) = (Instant::now(), self.declared.amqp().await);
        let done = CancellationToken::new();
        let watch = async {
            let dead = self.declared.dead_letters("work");
            let is_done = async || {
                let buried = usize::try_from(amqp.ready(&dead).await).unwrap();
                buried >= self.culprits && count(&self.runs(), "end").len() + buried >= self.events
            };
            let all = async {
                while !is_done().await {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            };
            // The assertions below report what is missing.
            let _ = tokio::time::timeout(LONGEST, all).await;
            amqp.expect_empty(&self.declared.passages()).await;
            done.cancel();
        };
        let (kills, ()) = tokio::join!(join_all((0..pods).map(|_| self.pod(&done))), watch);
        let (kills, runs) = (kills.into_iter().sum::<usize>(), self.runs());
        let (starts, ends) = (count(&runs, "begin"), count(&runs, "end"));
        let twice = ends.values().filter(|times| **times > 1).count();
        let _ = writeln!(
            io::stderr(),
            "{}: {} events, {} of them poison, {pods} pods: {kills} kills, {} handled, {twice} of them twice, {:.1} s",
            self.spec,
            self.events,
            self.culprits,
            ends.len(),
            begun.elapsed().as_secs_f64(),
        );
        assert_eq!(ends.len(), self.events - self.culprits, "not every innocent event is handled");
        let culprits: BTreeSet<String> = (1..=self.culprits).map(|n| format!("{CULPRIT}-{n}")).collect();
        for culprit in &culprits {
            assert!(starts[culprit] <= LIMIT, "{culprit} was started {} times", starts[culprit]);
        }
        // Each kill has a culprit, and their number stays far below the broker's delivery limit.
        assert!(kills <= LIMIT * self.culprits, "{kills} kills");
        self.assert_only_dead_letters(&amqp, culprits).await;
    }

    /// Asserts that only the culprits are dead-lettered, by a worker that gives the reason, and not by the broker.
    async fn assert_only_dead_letters(&self, amqp: &Amqp, mut culprits: BTreeSet<String>) {
        let dead = self.declared.dead_letters("work");
        while let Some(letter) = amqp.get(&dead).await {
            let payload = String::from_utf8_lossy(&letter.data).into_owned();
            assert!(culprits.remove(&payload), "{payload} is dead-lettered");
            let reason = shown(&letter, "reason").unwrap();
            assert!(reason.starts_with("crash: it "), "{reason}");
            assert_eq!(shown(&letter, "attempts").as_deref(), Some("0"));
            assert_eq!(header(&letter, "x-death"), None, "the broker dead-lettered {payload} at its delivery limit");
        }
        assert_eq!(culprits, BTreeSet::new(), "these culprits are not dead-lettered");
        let left = amqp.filled(&self.declared.queues()).await;
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Returns how often each payload is in lines of this kind.
fn count(runs: &str, what: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in runs.lines() {
        let mut words = line.split(' ');
        if let (Some(kind), Some(_), Some(payload)) = (words.next(), words.next(), words.next())
            && kind == what
        {
            *counts.entry(payload.to_owned()).or_default() += 1;
        }
    }
    counts
}

#[tokio::test]
#[ignore = "handles 10,000 events while one of them kills the workers; scripts/test --all runs it"]
async fn a_culprit_among_thousands_is_dead_lettered_alone_with_the_register() {
    Poisoned::new("lease: 500ms", events(), 1).await.works(1).await;
}

#[tokio::test]
#[ignore = "handles 10,000 events while one of them kills the workers; scripts/test --all runs it"]
async fn a_culprit_among_thousands_is_dead_lettered_alone_without_the_register() {
    Poisoned::new("register: off", events(), 1).await.works(1).await;
}

#[tokio::test]
#[ignore = "handles 2,000 events of each of two types while three kill workers; scripts/test --all runs it"]
async fn several_pods_dead_letter_several_culprits_and_nothing_else() {
    join_all(["lease: 500ms", "register: off"].map(async |spec| {
        Poisoned::new(spec, events() / 5, 3).await.works(3).await;
    }))
    .await;
}

/// The 40 culprits would exceed RabbitMQ's delivery limit if each kill counted against all events that the worker held.
#[tokio::test]
#[ignore = "handles 400 events of which 40 kill their worker; scripts/test --all runs it"]
async fn neighbouring_culprits_are_dead_lettered_alone_without_the_register() {
    Poisoned::crowded("register: off", 400, CROWD).await.works(1).await;
}

#[tokio::test]
#[ignore = "handles 400 events of which 40 kill their worker; scripts/test --all runs it"]
async fn neighbouring_culprits_are_dead_lettered_alone_with_the_register() {
    Poisoned::crowded("lease: 500ms", 400, CROWD).await.works(1).await;
}

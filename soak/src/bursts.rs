//! Bursts of changes of the same references: first with a healthy Redis, then while Redis is killed, emptied and
//! flushed.

use std::{cell::Cell, fs, time::Duration};

use anyhow::Context as _;
use hatchery::{NewEvent, Publisher};
use tokio::time::Instant;

use crate::harness::{
    Chance, Changes, Common, Console, Hold, PATIENCE, PAYLOAD, Queues, Table, Working, connect_to_redis, grouped, watch,
};

const TOPOLOGY: &str = "\
version: 1
name: soak
defaults: { prefetch: 200, concurrency: 16, lease: 2s }
types: { change: { coalesce: { immediate: latest, window: 2s, max-wait: 30s } } }
";
const TYPE: &str = "change";
/// The window of the topology.
const WINDOW: Duration = Duration::from_secs(2);
/// The pause between two bursts, in addition to the window.
const REST: Duration = Duration::from_secs(1);
/// Changes of each reference in a burst.
const BURST: u32 = 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Events, half of them while Redis is killed, emptied and flushed
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    events: u32,
    /// References of these events
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    references: u32,
}

/// The published events. A round has one event for each reference. It begins when all events of the round before are
/// confirmed, so that it is certain which change is the newer one.
#[derive(Default)]
struct Sent {
    /// The time at which each round began.
    rounds: Vec<Instant>,
    /// For each event, by its number: whether it has no version, and so competes with no other.
    unversioned: Vec<bool>,
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let (mut stage, queues, mut chance) = args.common.begin(console, TOPOLOGY).await?;
    let mut redis = Redis::start().await?;
    stage.servers.redis.clone_from(&redis.url);
    // While Redis is well, every event has a version, also on a busy machine.
    let (hatchery, patient) = (stage.connect().await?, stage.builder().version_wait(PATIENCE).connect().await?);
    let workers = [Working::start(&hatchery, &[TYPE]), Working::start(&patient, &[TYPE])];
    let bursts = args.events.div_ceil(2 * BURST * args.references);
    let half = bursts * BURST * args.references;
    let said = format!("{} changes of {} references, in bursts", grouped(half), grouped(args.references));

    console.step(&said);
    let mut calm = Sent::default();
    for burst in 0..bursts {
        calm.burst(&patient.publisher(), args, 0, &mut chance).await?;
        console.progress(burst as usize + 1, bursts as usize, "");
        tokio::time::sleep(WINDOW + REST).await;
    }
    all_is_over(console, &queues, &workers).await?;

    console.step(&format!("{said}, while Redis is killed, emptied and flushed"));
    let (mut harmed, mut faults) = (Sent::default(), Vec::new());
    let first_fault = usize::try_from(chance.between(0, 2))?;
    for burst in 0..bursts {
        let fault = Fault::ALL[(first_fault + burst as usize) % Fault::ALL.len()];
        let [wait, away] =
            [(0, 2_500), (200, 3_000)].map(|(low, high)| Duration::from_millis(chance.between(low, high)));
        let harm = tokio::spawn(harm(redis, fault, wait, away));
        harmed.burst(&hatchery.publisher(), args, half, &mut chance).await?;
        console.progress(burst as usize + 1, bursts as usize, "");
        tokio::time::sleep(WINDOW + REST).await;
        redis = harm.await??;
        faults.push(fault);
    }
    all_is_over(console, &queues, &workers).await?;
    let mut runs = Vec::new();
    for worker in workers {
        runs.extend(worker.stop().await?);
    }
    runs.sort_by_key(|run| run.at);
    let left = queues.are_busy(&[]).await?;
    for hatchery in [hatchery, patient] {
        hatchery.close().await;
    }
    redis.end().await;
    stage.keep("runs", &runs)?;

    let mut table = Table::new(&["", "calm", "harmed", "must be"]);
    let calls = |from: u32| -> Vec<u32> {
        let of = from..from + half;
        runs.iter().filter(|run| of.contains(&run.number)).map(|run| run.number - from).collect()
    };
    tell(&mut table, args, [(&calm, &calls(0)), (&harmed, &calls(half))]);
    let strangers = runs.iter().filter(|run| run.number >= 2 * half).count();
    table.must(strangers == 0, &["calls with unknown events", "", &grouped(strangers), "0"]);
    table.must(!left, &["left in a queue", "", if left { "some" } else { "0" }, "0"]);
    for fault in Fault::ALL {
        let times = faults.iter().filter(|other| **other == fault).count();
        table.tell(&[&format!("Redis {}", fault.said()), "", &grouped(times), ""]);
    }
    Ok(stage.conclude(console, &[table]).await)
}

/// Adds the numbers of both halves to the table, side by side.
fn tell(table: &mut Table, args: &Args, halves: [(&Sent, &[u32]); 2]) {
    let accounts = halves.map(|(sent, calls)| Changes::take(args.references, &sent.unversioned, calls));
    let windows = halves.map(|(sent, _)| sent.windows() * args.references as usize);
    let [calls, harmed_calls] = halves.map(|(_, calls)| calls.len());
    let unversioned = halves.map(|(sent, _)| sent.unversioned.iter().filter(|without| **without).count());
    let events = halves.map(|(sent, _)| grouped(sent.unversioned.len()));
    table.tell(&["changes", &events[0], &events[1], ""]);
    table.must(
        unversioned[0] == 0,
        &["without a version", &grouped(unversioned[0]), &grouped(unversioned[1]), "0, any"],
    );
    table.tell(&["references x windows", &grouped(windows[0]), &grouped(windows[1]), ""]);
    // A worker that is behind may run a change that has waited for the longest time, or one that a change of the next
    // window replaces. On a busy machine a burst takes more than one window, and a reference late in one round and early in the
    // next has both changes in one. So the number of calls is not exact.
    let bursts = halves[0].0.rounds.len() / BURST as usize * args.references as usize;
    let (least, most) = (bursts - bursts / 10, windows[0] + windows[0] / 10);
    table.must(
        (least..=most).contains(&calls),
        &["calls", &grouped(calls), &grouped(harmed_calls), &format!("{} to {}, any", grouped(least), grouped(most))],
    );
    let mut zero = |what: &str, found: [usize; 2], harmed_too: bool| {
        let holds = found[0] == 0 && (found[1] == 0 || !harmed_too);
        table.must(holds, &[what, &grouped(found[0]), &grouped(found[1]), if harmed_too { "0, 0" } else { "0, any" }]);
    };
    let [calm, harmed] = accounts;
    zero("without their last change", [calm.without_last, harmed.without_last], true);
    zero("lost", [calm.lost, harmed.lost], true);
    zero("older change after a newer", [calm.backwards, harmed.backwards], false);
}

impl Sent {
    /// Publishes `BURST` rounds without a pause. Each round has the references in a random order.
    async fn burst(
        &mut self,
        publisher: &Publisher,
        args: &Args,
        first: u32,
        chance: &mut Chance,
    ) -> anyhow::Result<()> {
        let mut order: Vec<u32> = (0..args.references).collect();
        for _ in 0..BURST {
            self.rounds.push(Instant::now());
            let number = first + u32::try_from(self.unversioned.len())?;
            chance.shuffle(&mut order);
            let event = |reference: &u32| {
                let id = (number + reference).to_string();
                NewEvent::new(TYPE, PAYLOAD.to_vec()).reference(format!("{reference:010}")).id(id)
            };
            let published = publisher.publish_batch(order.iter().map(event).collect()).await;
            let round = self.unversioned.len();
            self.unversioned.resize(round + order.len(), false);
            for (reference, published) in order.iter().zip(published) {
                let published = published.context("an event was not confirmed")?;
                self.unversioned[round + *reference as usize] = published.unversioned;
            }
        }
        Ok(())
    }

    /// Returns how often a reference was changed with no change in the window before.
    fn windows(&self) -> usize {
        1 + self.rounds.windows(2).filter(|pair| pair[1].duration_since(pair[0]) >= WINDOW).count()
    }
}

/// A fault of Redis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Redis is killed and starts again with the data on its disk; the last second may be missing.
    Killed,
    /// Redis is killed and starts again empty.
    Emptied,
    /// All keys are deleted.
    Flushed,
}

impl Fault {
    const ALL: [Self; 3] = [Self::Killed, Self::Emptied, Self::Flushed];

    const fn said(self) -> &'static str {
        match self {
            Self::Killed => "killed, and started again",
            Self::Emptied => "killed, and started empty",
            Self::Flushed => "flushed",
        }
    }
}

/// Waits, then causes the fault. A killed Redis stays away for the time `away`.
async fn harm(mut redis: Redis, fault: Fault, wait: Duration, away: Duration) -> anyhow::Result<Redis> {
    tokio::time::sleep(wait).await;
    if fault == Fault::Flushed {
        redis.flush().await?;
        return Ok(redis);
    }
    redis.kill().await?;
    tokio::time::sleep(away).await;
    match fault {
        Fault::Emptied => redis.start_empty().await?,
        _ => redis.start_again().await?,
    }
    Ok(redis)
}

/// Waits until no event is in a queue that leads to a worker, and no more calls begin.
async fn all_is_over(console: &mut Console, queues: &Queues, workers: &[Working; 2]) -> anyhow::Result<()> {
    let before = Cell::new(None);
    let busy = async || {
        let now = workers[0].runs.len() + workers[1].runs.len();
        Ok(before.replace(Some(now)) != Some(now) || queues.are_busy(&[]).await?)
    };
    watch(console, 1, Duration::ZERO, &workers[0].runs, busy).await
}

/// A Redis that is killed and started again at the same port.
struct Redis {
    url: String,
    /// The folder of its data.
    folder: String,
    hold: Hold,
}

impl Redis {
    /// Starts Redis with an append-only file that is synced every second, which is Redis's default if it persists data.
    async fn start() -> anyhow::Result<Self> {
        let hold = Hold::redis("appendonly yes\n").await?;
        let url = hold.said("REDIS_URL")?;
        let mut connection = connect_to_redis(&url).await?;
        let (_, folder): (String, String) =
            redis::cmd("CONFIG").arg(&["GET", "dir"]).query_async(&mut connection).await?;
        Ok(Self { url, folder, hold })
    }

    /// Kills Redis with SIGKILL.
    async fn kill(&mut self) -> anyhow::Result<()> {
        self.hold.tell("kill redis").await
    }

    /// Starts Redis again with the data on its disk.
    async fn start_again(&mut self) -> anyhow::Result<()> {
        self.hold.tell("start redis").await
    }

    /// Starts Redis again without its data.
    async fn start_empty(&mut self) -> anyhow::Result<()> {
        fs::remove_dir_all(&self.folder)?;
        self.start_again().await
    }

    async fn flush(&self) -> anyhow::Result<()> {
        let mut connection = connect_to_redis(&self.url).await?;
        Ok(redis::cmd("FLUSHALL").query_async(&mut connection).await?)
    }

    async fn end(self) {
        self.hold.end().await;
    }
}

//! Measures the memory of a publisher that gets events as fast as it takes them, while the broker blocks it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::ensure;

use super::{
    args::Args,
    resident::{Resident, mib},
};
use crate::harness::{Console, Note, Notes, Process, Queues, Stage, Step, Table, grouped};

const TYPE: &str = "blocked";
const TICK: Duration = Duration::from_millis(100);
/// How many confirms are awaited before the broker blocks, and again after it.
const SOME: usize = 2_000;
/// The time without a confirm after which the broker counts as blocking.
const SILENCE: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) async fn run(
    args: &Args,
    stage: &mut Stage,
    console: &mut Console,
    table: &mut Table,
) -> anyhow::Result<()> {
    console.step("Publish as fast as it goes, and block the publisher by a memory alarm");
    let (notes, payload) = (Notes::new(stage.path("blocked"))?, args.payload.to_string());
    let arguments = ["--notes", &notes.path(), "--type", TYPE, "--payload", &payload].map(ToOwned::to_owned);
    let feeder = Process::child(stage, "feeder", 1, &arguments)?;
    let mut publishing = Publishing { feeder, notes, all: Vec::new() };
    publishing.more_confirms().await?;
    stage.servers.ctl("set_vm_memory_high_watermark 0.0001").await?;
    publishing.until_silent().await?;
    let queues = Queues::connect(stage).await?;
    let queue = stage.names().processing(&TYPE.parse()?);
    let before = queues.ready(std::slice::from_ref(&queue)).await?;

    let (blocked, limit) = (Instant::now(), Duration::from_secs(args.block_for.into()));
    let mut resident = Resident::default();
    while blocked.elapsed() < limit {
        tokio::time::sleep(TICK).await;
        publishing.feeder.require_alive()?;
        let kib = publishing.feeder.resident()?;
        resident.sample(blocked.elapsed().as_secs_f64() / limit.as_secs_f64(), kib);
        let seconds = usize::try_from(blocked.elapsed().as_secs())?.min(args.block_for as usize);
        console.progress(seconds, args.block_for as usize, &format!(" seconds, {}", mib(kib)));
    }
    console.end_progress();
    let arrived = queues.ready(std::slice::from_ref(&queue)).await? - before;

    console.step("Unblock the publisher, and look for all confirmed events");
    stage.servers.ctl("set_vm_memory_high_watermark 0.4").await?;
    publishing.more_confirms().await?;
    let notes = publishing.stop().await?;
    let found: BTreeSet<String> = queues.drain(&queue).await?.into_iter().collect();
    let of = |step| notes.iter().filter(move |note| note.step == step);
    let lost = of(Step::Confirmed).filter(|note| !found.contains(&note.id)).count();

    table.tell(&["blocked for", &format!("{} s", args.block_for), ""]);
    table.none("arrived meanwhile", arrived);
    table.tell(&["given up by the publisher", &grouped(of(Step::Unconfirmed).count()), ""]);
    table.tell(&["confirmed in all", &grouped(of(Step::Confirmed).count()), ""]);
    table.none("confirmed, and lost", lost);
    table.tell(&["the publisher's memory at first", &mib(resident.first()), ""]);
    let limit = format!("at most {}", mib(resident.limit()));
    table.must(resident.is_flat(), &["at most", &mib(resident.most()), &limit]);
    Ok(())
}

/// The publisher, and its notes.
struct Publishing {
    feeder: Process,
    notes: Notes,
    all: Vec<Note>,
}

impl Publishing {
    /// Returns how many more events are confirmed.
    fn look(&mut self) -> anyhow::Result<usize> {
        self.feeder.require_alive()?;
        let new = self.notes.read()?;
        let confirmed = new.iter().filter(|note| note.step == Step::Confirmed).count();
        self.all.extend(new);
        Ok(confirmed)
    }

    /// Waits until `SOME` more events are confirmed.
    async fn more_confirms(&mut self) -> anyhow::Result<()> {
        let (mut more, started) = (0, Instant::now());
        while more < SOME {
            ensure!(started.elapsed() < PATIENCE, "only {more} publishes were confirmed within {PATIENCE:?}");
            tokio::time::sleep(TICK).await;
            more += self.look()?;
        }
        Ok(())
    }

    /// Waits until no event is confirmed for the time `SILENCE`.
    async fn until_silent(&mut self) -> anyhow::Result<()> {
        let (mut heard, started) = (Instant::now(), Instant::now());
        while heard.elapsed() < SILENCE {
            ensure!(started.elapsed() < PATIENCE, "the broker does not block");
            tokio::time::sleep(TICK).await;
            if self.look()? > 0 {
                heard = Instant::now();
            }
        }
        Ok(())
    }

    /// Stops the publisher, and returns all notes.
    async fn stop(mut self) -> anyhow::Result<Vec<Note>> {
        self.feeder.stop().await?;
        self.all.extend(self.notes.read()?);
        Ok(self.all)
    }
}

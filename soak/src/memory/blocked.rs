//! Measures the memory of a publisher that gets events as fast as it takes them, while the broker blocks it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::ensure;
use hatchery::internals::names::Names;

use super::{
    args::Args,
    resident::{Resident, mib},
};
use crate::{
    child::Process,
    console::Console,
    notes::{Note, Notes, What},
    queues::Queues,
    stage::Stage,
    table::{Table, grouped},
};

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
    let mut notes: Notes = Notes::new(stage.path("blocked"))?;
    let (path, payload) = (notes.path().display().to_string(), args.payload.to_string());
    let arguments = ["--notes", &path, "--type", TYPE, "--payload", &payload].map(ToOwned::to_owned);
    let mut feeder = Process::start(stage, "feeder", 1, &arguments)?;
    more_confirms(&mut notes, &mut feeder).await?;
    stage.servers.ctl("set_vm_memory_high_watermark 0.0001").await?;
    until_silent(&mut notes).await?;
    let queues = Queues::connect(&stage.servers.amqp).await?;
    let queue = Names::new(stage.topology.name.clone()).processing(&TYPE.parse()?);
    let before = queues.ready(std::slice::from_ref(&queue)).await?;

    let (blocked, limit) = (Instant::now(), Duration::from_secs(args.block_for.into()));
    let mut resident = Resident::default();
    while blocked.elapsed() < limit {
        tokio::time::sleep(TICK).await;
        feeder.require_alive()?;
        let kib = feeder.resident()?;
        resident.sample(blocked.elapsed().as_secs_f64() / limit.as_secs_f64(), kib);
        let seconds = usize::try_from(blocked.elapsed().as_secs())?.min(args.block_for as usize);
        console.progress(seconds, args.block_for as usize, &format!(" seconds, {}", mib(kib)));
    }
    console.end_progress();
    let arrived = queues.ready(std::slice::from_ref(&queue)).await? - before;

    console.step("Unblock the publisher, and look for all confirmed events");
    stage.servers.ctl("set_vm_memory_high_watermark 0.4").await?;
    more_confirms(&mut notes, &mut feeder).await?;
    feeder.stop().await?;
    notes.read()?;
    let found: BTreeSet<String> = queues.drain(&queue).await?.into_iter().collect();
    let of = |what| notes.all.iter().filter(move |note: &&Note| note.what == what);
    let lost = of(What::Confirmed).filter(|note| !found.contains(&note.number.to_string())).count();

    let count = |n: usize| grouped(n as u64);
    table.tell(&["blocked for", &format!("{} s", args.block_for), ""]);
    table.must(arrived == 0, &["arrived meanwhile", &grouped(arrived), "0"]);
    table.tell(&["given up by the publisher", &count(of(What::Unconfirmed).count()), ""]);
    table.tell(&["confirmed in all", &count(of(What::Confirmed).count()), ""]);
    table.must(lost == 0, &["confirmed, and lost", &count(lost), "0"]);
    table.tell(&["the publisher's memory at first", &mib(resident.first()), ""]);
    let limit = format!("at most {}", mib(resident.limit()));
    table.must(resident.is_flat(), &["at most", &mib(resident.most()), &limit]);
    Ok(())
}

/// Waits until `SOME` more events are confirmed.
async fn more_confirms(notes: &mut Notes, feeder: &mut Process) -> anyhow::Result<()> {
    let (mut more, started) = (0, Instant::now());
    while more < SOME {
        ensure!(started.elapsed() < PATIENCE, "only {more} publishes were confirmed within {PATIENCE:?}");
        tokio::time::sleep(TICK).await;
        feeder.require_alive()?;
        more += notes.read()?.iter().filter(|note| note.what == What::Confirmed).count();
    }
    Ok(())
}

/// Waits until no event is confirmed for the time `SILENCE`.
async fn until_silent(notes: &mut Notes) -> anyhow::Result<()> {
    let (mut heard, started) = (Instant::now(), Instant::now());
    while heard.elapsed() < SILENCE {
        ensure!(started.elapsed() < PATIENCE, "the broker does not block");
        tokio::time::sleep(TICK).await;
        if !notes.read()?.is_empty() {
            heard = Instant::now();
        }
    }
    Ok(())
}

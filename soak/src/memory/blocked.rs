//! Measures the memory of a publisher that gets events as fast as it takes them, while the broker blocks it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::resident::{Resident, mib};
use crate::harness::{Console, Crew, PATIENCE, Queues, Stage, Step, Table, grouped, of, until_well};

const TYPE: &str = "blocked";
const TICK: Duration = Duration::from_millis(100);
/// How many confirms are awaited before the broker blocks, and again after it.
const SOME: usize = 2_000;
/// The time without a confirm after which the broker counts as blocking.
const SILENCE: Duration = Duration::from_secs(5);

pub(super) async fn run(
    block_for: u32,
    payload: usize,
    stage: &mut Stage,
    console: &mut Console,
    table: &mut Table,
) -> anyhow::Result<()> {
    console.step("Publish as fast as it goes, and block the publisher by a memory alarm");
    let payload = payload.to_string();
    let mut feeder = Crew::start(stage, "feeder", 1, &["--type", TYPE, "--payload", &payload])?;
    more_confirms(&mut feeder).await?;
    stage.servers.ctl("set_vm_memory_high_watermark 0.0001").await?;
    until_silent(&mut feeder).await?;
    let queues = Queues::connect(stage).await?;
    let queue = stage.names().processing(&TYPE.parse()?);
    let before = queues.ready(std::slice::from_ref(&queue)).await?;

    let (blocked, limit) = (Instant::now(), Duration::from_secs(block_for.into()));
    let mut resident = Resident::default();
    while blocked.elapsed() < limit {
        tokio::time::sleep(TICK).await;
        feeder.look()?;
        let kib = feeder.resident()?;
        resident.sample(blocked.elapsed().as_secs_f64() / limit.as_secs_f64(), kib);
        let seconds = usize::try_from(blocked.elapsed().as_secs())?.min(block_for as usize);
        console.progress(seconds, block_for as usize, &format!(" seconds, {}", mib(kib)));
    }
    console.end_progress();
    let arrived = queues.ready(std::slice::from_ref(&queue)).await? - before;

    console.step("Unblock the publisher, and look for all confirmed events");
    stage.servers.ctl("set_vm_memory_high_watermark 0.4").await?;
    more_confirms(&mut feeder).await?;
    feeder.stop().await?;
    let found: BTreeSet<String> = queues.drain(&queue).await?.into_iter().collect();
    let of = |step| of(&feeder.notes, step);
    let lost = of(Step::Confirmed).filter(|note| !found.contains(&note.id)).count();

    table.tell(&["blocked for", &format!("{block_for} s"), ""]);
    table.none("arrived meanwhile", arrived);
    table.tell(&["given up by the publisher", &grouped(of(Step::Unconfirmed).count()), ""]);
    table.tell(&["confirmed in all", &grouped(of(Step::Confirmed).count()), ""]);
    table.none("confirmed, and lost", lost);
    table.tell(&["the publisher's memory at first", &mib(resident.first()), ""]);
    let limit = format!("at most {}", mib(resident.limit()));
    table.must(resident.is_flat(), &["at most", &mib(resident.most()), &limit]);
    Ok(())
}

/// Waits until `SOME` more events are confirmed.
async fn more_confirms(feeder: &mut Crew) -> anyhow::Result<()> {
    let mut more = 0;
    until_well(PATIENCE, TICK, async || {
        more += of(feeder.look()?, Step::Confirmed).count();
        Ok((more < SOME).then(|| format!("only {more} publishes were confirmed")))
    })
    .await
}

/// Waits until no event is confirmed for the time `SILENCE`.
async fn until_silent(feeder: &mut Crew) -> anyhow::Result<()> {
    let mut heard = Instant::now();
    until_well(PATIENCE, TICK, async || {
        if of(feeder.look()?, Step::Confirmed).next().is_some() {
            heard = Instant::now();
        }
        Ok((heard.elapsed() < SILENCE).then(|| "the broker does not block".to_owned()))
    })
    .await
}

//! Measures the memory of a worker with a backlog that is much larger than its memory could hold.

use std::{pin::pin, time::Instant};

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, stream};
use hatchery::NewEvent;

use super::resident::{Resident, mib};
use crate::harness::{
    Account, Console, Crew, Look, Note, PATIENCE, PAYLOAD, Stage, Step, Table, grouped, of, until_over,
};

const TYPE: &str = "backlog";

pub(super) async fn run(events: u32, stage: &Stage, console: &mut Console, table: &mut Table) -> anyhow::Result<()> {
    console.step(&format!("Publish a backlog of {} events", grouped(events)));
    publish(events, stage, console).await?;

    console.step("Start a worker, and watch its memory");
    let (started, mut worker) = (Instant::now(), Crew::start(stage, "worker", 1, &["--type", TYPE])?);
    let (mut resident, mut done, mut took) = (Resident::default(), 0, None);
    let all = events as usize;
    until_over(console, PATIENCE, async || {
        done += of(worker.look()?, Step::Done).count();
        let kib = worker.resident()?;
        // Before its first event the worker connects, and its memory says nothing.
        if done > 0 {
            resident.sample(f64::from(u32::try_from(done)?) / f64::from(events), kib);
        }
        if done >= all {
            took.get_or_insert_with(|| started.elapsed());
        }
        Ok(Look { done, all, said: format!(", {}", mib(kib)), is_over: done >= all })
    })
    .await?;
    let took = took.unwrap_or_else(|| started.elapsed());
    worker.stop().await?;

    let account = Account::take(0..events, of(&worker.notes, Step::Done).map(Note::number));
    table.must(account.handled == all, &["backlog, handled", &grouped(account.handled), &grouped(all)]);
    table.none("handled twice", account.twice.len());
    table.tell(&["time for all", &format!("{:.1} s", took.as_secs_f64()), ""]);
    ensure!(resident.samples() > 0, "the worker was too fast to be measured");
    table.tell(&["the worker's memory at first", &mib(resident.first()), ""]);
    let limit = format!("at most {}", mib(resident.limit()));
    table.must(resident.is_flat(), &["at most", &mib(resident.most()), &limit]);
    Ok(())
}

async fn publish(events: u32, stage: &Stage, console: &mut Console) -> anyhow::Result<()> {
    let hatchery = stage.connect().await?;
    let event = |number: u32| NewEvent::new(TYPE, PAYLOAD.to_vec()).id(number.to_string());
    let publisher = hatchery.publisher();
    let mut published = pin!(publisher.publish_stream(stream::iter((0..events).map(event))).enumerate());
    while let Some((n, published)) = published.next().await {
        published.context("an event was not confirmed")?;
        if n.is_multiple_of(1_000) {
            console.progress(n, events as usize, "");
        }
    }
    console.end_progress();
    hatchery.close().await;
    Ok(())
}

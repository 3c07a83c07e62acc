//! Publishes 100 changes of each reference, in turns, and works at the same time: the events of one reference that are
//! published within the window become one run. Bare lapin consumes every one.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::throughput;
use crate::{
    handled::Handled,
    load::{Load, Side},
    meter::Measured,
    ours,
    surroundings::Surroundings,
    topology::Type,
};

const TYPE: Type = Type::Windowed;
/// Changes of each reference.
const CHANGES: u32 = 100;

pub(super) async fn run(around: &Surroundings, load: &Load, side: Side) -> anyhow::Result<Measured> {
    let (measured, runs, took) = match side {
        Side::Ours => ours(around, load).await?,
        Side::Bare => {
            let (measured, took) = throughput::bare(around, TYPE, load).await?;
            (measured, load.events, took)
        }
    };
    let rate = f64::from(load.events) / took.as_secs_f64();
    Ok(measured.with("runs", runs.into(), "").with("published", rate, "/s"))
}

/// Returns also the number of runs, and how long publishing took.
async fn ours(around: &Surroundings, load: &Load) -> anyhow::Result<(Measured, u32, Duration)> {
    let references = (load.events / CHANGES).max(1);
    let (publishing, working) = (around.hatchery().await?, around.hatchery().await?);
    // The last change of each reference has to run. Each other one runs, or a newer one replaces it.
    let last = load.events - references;
    let handled = Arc::new(Handled::awaiting(last..load.events));
    let measuring = around.meter.begin()?;
    let publish = tokio::spawn({
        let load = load.clone();
        async move {
            let shape = |number: u32, event: hatchery::NewEvent| {
                event.id(number.to_string()).reference((number % references).to_string())
            };
            let started = Instant::now();
            // All others are confirmed before the last changes are published, so these are the newest.
            for numbers in [0..last, last..load.events] {
                ours::publish_numbers(&publishing, TYPE, &load, numbers, shape).await?;
            }
            let took = started.elapsed();
            publishing.close().await;
            anyhow::Ok(took)
        }
    });
    ours::work(&working, TYPE, load, Arc::clone(&handled)).await?;
    let took = publish.await??;
    let measured = measuring.end_at(handled.all_at()?, load.events)?;
    working.close().await;
    Ok((measured, handled.runs(), took))
}

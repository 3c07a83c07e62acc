//! hatchery's side: the library's publisher and worker.

use std::time::Duration;

use super::topology::TYPE;
use crate::{
    console::Console,
    plan::Plan,
    queues::Queues,
    runs::Run,
    stage::Stage,
    traffic::{self, Working},
};

/// Publishes the plan, and waits until all its events have run. Returns the runs, and how long publishing took.
pub(super) async fn run(
    stage: &Stage,
    plan: &Plan,
    console: &mut Console,
    queues: &Queues,
) -> anyhow::Result<(Vec<Run>, Duration)> {
    let hatchery = stage.connect().await?;
    let working = Working::start(&hatchery, &[TYPE]);
    let publishing = tokio::spawn(traffic::publish(hatchery.publisher(), plan.clone()));
    let busy = async || traffic::is_busy(queues, &stage.topology, &[]).await;
    traffic::watch(console, &working.runs, plan.events.len(), plan.longest(), busy).await?;
    let took = publishing.await??;
    let runs = working.stop().await?.all();
    hatchery.close().await;
    Ok((runs, took))
}

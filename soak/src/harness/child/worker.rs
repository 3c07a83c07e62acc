//! A child process with a worker whose handlers note their runs in a file.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use hatchery::{CancellationToken, Hatchery, Outcome, Run};
use hatchery_soak::chance::Chance;

use crate::harness::notes::{Pen, Step};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The types whose events it handles
    #[arg(long)]
    r#type: Vec<String>,
    /// The sources whose messages it takes
    #[arg(long)]
    source: Vec<String>,
    /// The longest that a handler takes, in milliseconds
    #[arg(long, default_value_t = 0)]
    pause: u64,
    /// Of this many events, the first run of one fails. Their ids are numbers
    #[arg(long)]
    fail_every: Option<u32>,
}

pub(super) async fn run(args: &Args, hatchery: &Hatchery, pen: Pen, stop: CancellationToken) -> anyhow::Result<()> {
    let pen = Arc::new(pen);
    let mut worker = args.source.iter().fold(hatchery.worker(), |worker, name| worker.source(name));
    for event_type in &args.r#type {
        let (pen, pause, fail_every) = (Arc::clone(&pen), args.pause, args.fail_every);
        worker = worker.handle(event_type, move |run: Run| handle(Arc::clone(&pen), run, pause, fail_every));
    }
    worker.run(stop).await?;
    Ok(())
}

async fn handle(pen: Arc<Pen>, run: Run, pause: u64, fail_every: Option<u32>) -> anyhow::Result<Outcome> {
    let (event_type, id) = (run.event.event_type.as_str(), run.event.id.as_str());
    pen.note(Step::Begun, event_type, id)?;
    if pause > 0 {
        // So the runs differ in length, and a kill hits some of them.
        tokio::time::sleep(Duration::from_millis(Chance::of(id).between(0, pause))).await;
    }
    if let Some(every) = fail_every
        && run.event.attempts == 0
        && id.parse::<u32>().context("an id that is no number")?.is_multiple_of(every)
    {
        pen.note(Step::Failed, event_type, id)?;
        anyhow::bail!("the first try fails");
    }
    pen.note(Step::Done, event_type, id)?;
    Ok(Outcome::Done)
}

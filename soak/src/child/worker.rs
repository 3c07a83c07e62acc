//! A child process with a worker whose handlers note their runs in a file.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use hatchery::{CancellationToken, Outcome, Run};

use crate::{
    chance::Chance,
    notes::{Pen, What},
    stage::connect_from_environment,
};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The name that it writes into its notes
    #[arg(long)]
    name: u32,
    /// The file for its notes about runs
    #[arg(long)]
    notes: PathBuf,
    #[arg(long)]
    r#type: String,
    /// The longest that a handler takes, in milliseconds
    #[arg(long, default_value_t = 0)]
    pause: u64,
    /// Of this many events, the first run of one fails
    #[arg(long)]
    fail_every: Option<u32>,
}

pub(super) async fn run(args: &Args, stop: CancellationToken) -> anyhow::Result<()> {
    let hatchery = connect_from_environment(&format!("soak worker {}", args.name)).await?;
    let pen = Arc::new(Pen::open(&args.notes, args.name)?);
    let (pause, fail_every) = (args.pause, args.fail_every);
    let worker = hatchery.worker().handle(&args.r#type, move |run: Run| {
        let pen = Arc::clone(&pen);
        async move {
            let number: u32 = run.event.id.parse().context("an id that is no number")?;
            if pause > 0 {
                let millis = Chance::new(u64::from(number)).between(0, pause);
                tokio::time::sleep(Duration::from_millis(millis)).await;
            }
            if run.event.attempts == 0 && fail_every.is_some_and(|every| number.is_multiple_of(every)) {
                pen.note(What::Failed, number)?;
                anyhow::bail!("the first try fails");
            }
            pen.note(What::Done, number)?;
            Ok(Outcome::Done)
        }
    });
    worker.run(stop).await?;
    hatchery.close().await;
    Ok(())
}

//! A child process with a worker that notes the begin and the end of each run of a schedule's event.

use std::{path::PathBuf, sync::Arc, time::Duration};

use hatchery::{CancellationToken, Outcome, Run};
use jiff::Timestamp;

use crate::{
    notes::Pen,
    schedules::{
        mark::{Mark, Step},
        plan::{PAUSE, TYPES},
    },
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
}

pub(super) async fn run(args: &Args, stop: CancellationToken) -> anyhow::Result<()> {
    let hatchery = connect_from_environment(&format!("soak worker {}", args.name)).await?;
    let (pen, by) = (Arc::new(Pen::open(&args.notes, args.name)?), args.name);
    let mut worker = hatchery.worker();
    for event_type in TYPES {
        let pen = Arc::clone(&pen);
        worker = worker.handle(event_type, move |run: Run| {
            let pen = Arc::clone(&pen);
            async move {
                let id = run.event.id.clone();
                let mark = |step| {
                    let at = Timestamp::now().as_microsecond();
                    pen.write(&Mark { by, step, event_type: event_type.to_owned(), id: id.clone(), at })
                };
                mark(Step::Begun)?;
                // So the runs differ in length, and each is long enough for a kill to hit some of them.
                let millis = id.bytes().fold(0_u64, |sum, byte| sum * 31 % 1_009 + u64::from(byte)) % PAUSE;
                tokio::time::sleep(Duration::from_millis(millis)).await;
                mark(Step::Ended)?;
                anyhow::Ok(Outcome::Done)
            }
        });
    }
    worker.run(stop).await?;
    hatchery.close().await;
    Ok(())
}

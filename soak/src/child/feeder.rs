//! A publisher that is fed as fast as it takes events.

use std::path::PathBuf;

use hatchery::{CancellationToken, NewEvent};

use crate::{
    notes::{Pen, What},
    stage::connect_from_environment,
};

/// Events in a batch.
const BATCH: u32 = 1_000;

#[derive(clap::Args)]
pub(super) struct Args {
    /// What it calls itself
    #[arg(long)]
    name: u32,
    /// Where it notes what was confirmed
    #[arg(long)]
    notes: PathBuf,
    #[arg(long)]
    r#type: String,
    /// Bytes of each payload
    #[arg(long)]
    payload: usize,
}

pub(super) async fn run(args: &Args, stop: CancellationToken) -> anyhow::Result<()> {
    let hatchery = connect_from_environment("soak feeder").await?;
    let pen = Pen::open(&args.notes, args.name)?;
    let publisher = hatchery.publisher();
    let mut next = 0;
    while !stop.is_cancelled() {
        let numbers = next..next + BATCH;
        next = numbers.end;
        let event = |number: u32| NewEvent::new(&args.r#type, vec![b'7'; args.payload]).id(number.to_string());
        let published = publisher.publish_batch(numbers.clone().map(event).collect()).await;
        for (number, published) in numbers.zip(published) {
            pen.note(if published.is_ok() { What::Confirmed } else { What::Unconfirmed }, number)?;
        }
    }
    hatchery.close().await;
    Ok(())
}

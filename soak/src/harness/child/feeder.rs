//! A child process that publishes events as fast as the publisher takes them.

use std::pin::pin;

use futures_util::{StreamExt as _, stream};
use hatchery::{CancellationToken, Hatchery, NewEvent};

use crate::harness::notes::{Pen, Step};

#[derive(clap::Args)]
pub(super) struct Args {
    #[arg(long)]
    r#type: String,
    /// Bytes of each payload
    #[arg(long)]
    payload: usize,
}

pub(super) async fn run(args: &Args, hatchery: &Hatchery, pen: &Pen, stop: CancellationToken) -> anyhow::Result<()> {
    let publisher = hatchery.publisher();
    let event = |number: u32| NewEvent::new(&args.r#type, vec![b'7'; args.payload]).id(number.to_string());
    // The publisher takes the next event from the stream only when it has room for it.
    let events = stream::iter(0..).map(event).take_until(stop.cancelled());
    let mut published = pin!(publisher.publish_stream(events));
    let mut number = 0_u32;
    while let Some(published) = published.next().await {
        let step = if published.is_ok() { Step::Confirmed } else { Step::Unconfirmed };
        pen.note(step, &args.r#type, &number.to_string(), 0)?;
        number += 1;
    }
    Ok(())
}

//! Checks that memory stays flat: that of a worker with a long backlog, and that of a publisher that the broker blocks.

mod backlog;
mod blocked;
mod resident;

use crate::harness::{Common, Console, Table};

const TOPOLOGY: &str = "\
version: 1
name: soak
defaults: { prefetch: 200, concurrency: 16 }
types: { backlog: {}, blocked: {} }
";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// Events in the worker's backlog
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    events: u32,
    /// Seconds for which the broker blocks the publisher, which gives up a publish after 30
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..))]
    block_for: u32,
    /// Bytes of each payload of the blocked publisher
    #[arg(long, default_value_t = 16_384)]
    payload: usize,
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let (mut stage, ..) = args.common.begin(console, TOPOLOGY).await?;
    let mut table = Table::new(&["", "", "must be"]);
    backlog::run(args.events, &stage, console, &mut table).await?;
    blocked::run(args.block_for, args.payload, &mut stage, console, &mut table).await?;
    let holds = stage.conclude(console, &[table]).await;
    console.note(resident::RULE);
    Ok(holds)
}

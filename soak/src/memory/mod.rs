//! Memory that must stay flat: of a worker with a long backlog, and of a publisher that the broker has blocked.

mod backlog;
mod blocked;
mod resident;

use crate::{Common, console::Console, stage::Stage, table::Table};

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
    /// Seconds for which the broker blocks the publisher. A publish is given up after 30
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..))]
    block_for: u32,
    /// Bytes of each payload that the blocked publisher has
    #[arg(long, default_value_t = 16_384)]
    payload: usize,
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    args.common.announce(console);
    let mut stage = Stage::set(console, args.common.version.as_deref(), TOPOLOGY).await?;
    let mut table = Table::new(&["", "", "must be"]);
    backlog::run(args, &stage, console, &mut table).await?;
    blocked::run(args, &mut stage, console, &mut table).await?;
    console.step(&format!("The account, of RabbitMQ {}", stage.version));
    console.say(&table.render());
    console.note(resident::RULE);
    let holds = table.holds();
    stage.end(console, holds).await;
    Ok(holds)
}

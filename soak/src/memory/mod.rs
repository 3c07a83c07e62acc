//! Checks that memory stays flat: that of a worker with a long backlog, and that of a publisher that the broker blocks.

mod args;
mod backlog;
mod blocked;
mod resident;

pub(crate) use self::args::Args;
use crate::harness::{Console, Table};

const TOPOLOGY: &str = "\
version: 1
name: soak
defaults: { prefetch: 200, concurrency: 16 }
types: { backlog: {}, blocked: {} }
";

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let (mut stage, ..) = args.common.begin(console, TOPOLOGY).await?;
    let mut table = Table::new(&["", "", "must be"]);
    backlog::run(args, &stage, console, &mut table).await?;
    blocked::run(args, &mut stage, console, &mut table).await?;
    let holds = stage.conclude(console, &[table]).await;
    console.note(resident::RULE);
    Ok(holds)
}

//! Checks that memory stays flat: that of a worker with a long backlog, and that of a publisher that the broker blocks.

mod args;
mod backlog;
mod blocked;
mod resident;

pub(crate) use self::args::Args;
use crate::{console::Console, stage::Stage, table::Table};

const TOPOLOGY: &str = "\
version: 1
name: soak
defaults: { prefetch: 200, concurrency: 16 }
types: { backlog: {}, blocked: {} }
";

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

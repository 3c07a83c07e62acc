//! The circuit breaker of a type whose events fail now and then, and pauses of a type under load, with workers that are killed,
//! a broker that is restarted and a Redis that is flushed.

mod breakers;
mod openings;
mod pauses;

use crate::harness::{Common, Console};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    breakers: breakers::Breaking,
    #[command(flatten)]
    pauses: pauses::Pausing,
    /// Require no times, for busy machines
    #[arg(long)]
    no_times: bool,
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let topology = topology(&args.breakers.types());
    let (mut stage, queues, mut chance) = args.common.begin(console, &topology).await?;
    let (workers, no_times) = (args.pauses.kills.workers, args.no_times);
    let breakers = breakers::run(&args.breakers, workers, console, &stage, &queues, &mut chance, no_times).await?;
    let pauses = pauses::run(&args.pauses, console, &mut stage, chance, no_times).await?;
    Ok(stage.conclude(console, &[breakers, pauses]).await)
}

fn topology(types: &str) -> String {
    format!("version: 1\nname: soak\ndefaults: {{ prefetch: 100, concurrency: 8 }}\n{types}{}", pauses::TYPES)
}

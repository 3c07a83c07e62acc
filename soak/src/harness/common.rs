//! The arguments that every mode takes, and how a mode begins.

use std::time::{SystemTime, UNIX_EPOCH};

use hatchery_soak::{chance::Chance, console::Console, stage::Stage};

use super::queues::Queues;

/// The arguments that every mode takes.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// The seed of another run, to repeat its random choices
    #[arg(long)]
    seed: Option<u64>,
    /// RabbitMQ version of scripts/brokers: 3.10, 4.0, 4.3 [default: the installed one]
    #[arg(long)]
    pub(crate) version: Option<String>,
}

impl Common {
    /// Prints the seed, starts the servers and applies the topology.
    pub(crate) async fn begin(&self, console: &mut Console, topology: &str) -> anyhow::Result<(Stage, Queues, Chance)> {
        let chance = self.chance(console);
        let stage = Stage::set(console, self.version.as_deref(), topology).await?;
        let queues = Queues::connect(&stage).await?;
        Ok((stage, queues, chance))
    }

    /// Prints the seed, and returns its random numbers.
    pub(crate) fn chance(&self, console: &Console) -> Chance {
        let new = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| u64::from(now.subsec_micros()));
        let seed = self.seed.unwrap_or_else(new);
        console.say(&format!("--seed {seed}"));
        Chance::new(seed)
    }
}

/// The arguments of a comparison of two sides.
#[derive(clap::Args)]
pub(crate) struct Sides {
    /// Rounds; the sides take turns at being first
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) rounds: u32,
    /// Only account for the events and require no ratio, for small runs and busy machines
    #[arg(long)]
    no_ratio: bool,
}

impl Sides {
    /// Returns this limit if a ratio is required.
    pub(crate) fn limit(&self, limit: f64) -> Option<f64> {
        (!self.no_ratio).then_some(limit)
    }
}

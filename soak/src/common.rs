//! The arguments that every mode takes.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::console::Console;

/// The arguments that every mode takes.
#[derive(clap::Args)]
pub(crate) struct Common {
    /// The seed of another run, to repeat its random choices
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// RabbitMQ version of scripts/brokers: 3.10, 4.0, 4.3 [default: the installed one]
    #[arg(long)]
    pub(crate) version: Option<String>,
}

impl Common {
    /// Prints the seed, and returns it.
    pub(crate) fn announce(&self, console: &Console) -> u64 {
        let new = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| u64::from(now.subsec_micros()));
        let seed = self.seed.unwrap_or_else(new);
        console.say(&format!("--seed {seed}"));
        seed
    }
}

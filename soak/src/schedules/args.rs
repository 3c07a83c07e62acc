//! The arguments of the mode.

use crate::common::Common;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) common: Common,
    /// Schedules that run every second, with fixed instants
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) schedules: u32,
    /// Schedules that run every second, each run a second after the end of the one before
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) sequential: u32,
    /// Seconds of kills and roll-outs
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(10..))]
    pub(super) seconds: u32,
    /// Worker processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(super) workers: u32,
    /// Loops that run `topology apply` again and again
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(super) applies: u32,
    /// Milliseconds between two kills of a worker, on average; each is random
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(10..))]
    pub(super) kill_every: u32,
    /// Fail if fewer workers were killed
    #[arg(long, default_value_t = 20)]
    pub(super) at_least: u32,
    /// What is lost after the kills, one loss after the other
    #[arg(long, value_delimiter = ',', default_values_t = [Loss::Purge, Loss::Flush, Loss::Both])]
    pub(super) losses: Vec<Loss>,
}

/// A loss that the chains survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Loss {
    /// The queues of the ladder are purged
    Purge,
    /// Redis is flushed
    Flush,
    /// Redis is flushed between two purges
    Both,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Purge => "purge",
            Self::Flush => "flush",
            Self::Both => "both",
        })
    }
}

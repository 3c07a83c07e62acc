//! The arguments of the mode.

use crate::harness::{Common, Kills};

#[derive(clap::Args)]
#[command(mut_arg("workers", |arg| arg.default_value("4")))]
#[command(mut_arg("kill_every", |arg| arg.default_value("3000")))]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) kills: Kills,
    /// Schedules that run every second, with fixed instants
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) schedules: u32,
    /// Schedules that run every second, each run a second after the end of the one before
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) sequential: u32,
    /// Seconds of kills and roll-outs
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(10..))]
    pub(super) seconds: u32,
    /// Loops that run `topology apply` again and again
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(super) applies: u32,
    /// What is lost after the kills, one loss after the other
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Loss::Purge, Loss::Flush, Loss::Both])]
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

impl Loss {
    pub(super) const fn said(self) -> &'static str {
        match self {
            Self::Purge => "a purge of the ladder",
            Self::Flush => "a flush of Redis",
            Self::Both => "a purge and a flush",
        }
    }
}

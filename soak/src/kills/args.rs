//! The type of the events, and the arguments of the mode.

use crate::common::Common;

pub(super) const TYPE: &str = "work";

/// Of this many events, the first run of one fails.
pub(super) const FAIL_EVERY: u32 = 100;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) common: Common,
    /// Events; the first run of every hundredth fails
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    pub(super) events: u32,
    /// Worker processes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(super) workers: u32,
    /// Milliseconds between two kills, on average; each is random
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(10..))]
    pub(super) kill_every: u32,
    /// The longest that a handler takes, in milliseconds; each is random
    #[arg(long, default_value_t = 20)]
    pub(super) pause: u32,
    /// Fail if there were fewer kills
    #[arg(long, default_value_t = 20)]
    pub(super) at_least: u32,
}

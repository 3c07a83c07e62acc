//! The arguments of the mode.

use crate::harness::Common;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) common: Common,
    /// Events in the worker's backlog
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    pub(super) events: u32,
    /// Seconds for which the broker blocks the publisher, which gives up a publish after 30
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..))]
    pub(super) block_for: u32,
    /// Bytes of each payload of the blocked publisher
    #[arg(long, default_value_t = 16_384)]
    pub(super) payload: usize,
}

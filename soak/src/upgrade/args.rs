//! The arguments of the mode.

use std::path::PathBuf;

use crate::harness::Common;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) common: Common,
    /// The `topology` of the last release; scripts/soak builds it if this is not given
    #[arg(long, value_name = "PROGRAM")]
    pub(super) released: PathBuf,
    /// Seconds of load, with an upgrade, a roll-back and an upgrade
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(20..))]
    pub(super) seconds: u32,
    /// Events a second
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(10..=1_000))]
    pub(super) rate: u32,
    /// Worker processes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=20))]
    pub(super) workers: u32,
    /// Publisher processes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=20))]
    pub(super) publishers: u32,
}

//! `topology events reschedule`.

use jiff::Timestamp;

use super::{
    moving::{self, Words},
    which::{Chosen, parse_moment},
};
use crate::{args::Common, exit::Exit, output::Output};

/// Give events that wait another time: those of a reference, one by its id, or all that a filter finds
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  topology events reschedule --type hr-import --reference 1234 --to 2h
  topology events reschedule --type hr-import --reference 1234 \\
    --at 2026-06-01T09:00:00Z --to 2026-07-01T09:00:00Z
  topology events reschedule --type mail --id ID --to 2026-06-01T09:00:00Z
  topology events reschedule --type mail --state retry --to 6h       a dry run
  topology events reschedule --type mail --state retry --to 6h --yes

What is named by --reference or --id is moved at once. What any other filter
finds is only shown and counted, until --yes is given.

Where the type says `keep-payload` the event is published again for its new
time, with 0 attempts, and its former message is dropped when it comes. Without
its payload it can only be put off.

Exit 1: none could be moved, nothing of it waits, or the topology was never
applied. 5: some could not.")]
pub(super) struct Args {
    #[command(flatten)]
    chosen: Chosen,

    /// The new time, or how long from now: 2h, 1d 12h
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    to: Timestamp,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    // As exact as a time on the wire.
    let to = Timestamp::from_millisecond(args.to.as_millisecond()).unwrap_or(args.to);
    let words = Words { done: format!("Rescheduled to {to}") };
    moving::run(common, &args.chosen, Some(to), &words, output).await
}

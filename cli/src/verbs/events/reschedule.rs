//! `topology events reschedule`.

use hatchery_admin::notation::parse_moment;
use jiff::Timestamp;

use super::{
    filters::Chosen,
    moving::{self, Words},
};
use crate::{args::Common, exit::Exit, output::Output};

/// Give waiting events another time: those of a reference, one by its id, or all that a filter finds
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology events reschedule --type hr-import --reference 1234 --delay 2h
  topology events reschedule --type hr-import --reference 1234 \\
    --at 2026-06-01T09:00:00Z --to 2026-07-01T09:00:00Z
  topology events reschedule --type mail --id ID --to 2026-06-01T09:00:00Z
  topology events reschedule --type mail --state retry --to 6h       a dry run
  topology events reschedule --type mail --state retry --to 6h --yes

Events that --reference or --id names are moved at once. Events that any other
filter finds are only shown and counted, unless --yes is given.

If the type has `keep-payload`, the event is published again for its new time
with 0 attempts, and its former message is dropped when it is delivered. Without
a kept payload, an event can only be moved to a later time.

Exit 1: no event could be moved, none waits, or the topology was never applied.
5: some events could not be moved.")]
pub(super) struct Args {
    #[command(flatten)]
    chosen: Chosen,

    /// The new time, or how long from now: 2h, 1d 12h
    #[arg(long, visible_alias = "delay", value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    to: Timestamp,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    // Times on the wire have milliseconds.
    let to = Timestamp::from_millisecond(args.to.as_millisecond()).unwrap_or(args.to);
    let words = Words { done: format!("Rescheduled to {to}") };
    moving::run(common, &args.chosen, Some(to), &words, output).await
}

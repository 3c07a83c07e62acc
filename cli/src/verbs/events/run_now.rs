//! `topology events run-now`.

use super::{
    filters::Chosen,
    moving::{self, Words},
};
use crate::{args::Common, exit::Exit, output::Output};

/// Run waiting events now: those of a reference, one by its id, or all that a filter finds
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology events run-now --type hr-import --reference 1234
  topology events run-now --type mail --id ID
  topology events run-now --type mail --state retry              a dry run
  topology events run-now --type mail --state retry --yes
  topology events run-now --type mail --state dead-letter --yes

Events that --reference or --id names are sent at once. Events that any other
filter finds are only shown and counted, unless --yes is given.

The event is published again, and its former message is dropped when it is
delivered. This needs the payload, so the type must have `keep-payload`. The
event keeps its number of attempts.

Exit 1: no event could be sent, none waits, or the topology was never applied.
5: some events could not be sent.")]
pub(super) struct Args {
    #[command(flatten)]
    chosen: Chosen,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let words = Words { done: "Sent to run now".to_owned() };
    moving::run(common, &args.chosen, None, &words, output).await
}

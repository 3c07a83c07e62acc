//! `topology events run-now`.

use super::{
    moving::{self, Words},
    which::Chosen,
};
use crate::{args::Common, exit::Exit, output::Output};

/// Run events that wait now: those of a reference, one by its id, or all that a filter finds
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  topology events run-now --type hr-import --reference 1234
  topology events run-now --type mail --id ID
  topology events run-now --type mail --state retry              a dry run
  topology events run-now --type mail --state retry --yes
  topology events run-now --type mail --state dead-letter --yes

What is named by --reference or --id runs at once. What any other filter finds
is only shown and counted, until --yes is given.

The event is published again, and its former message is dropped when it comes:
that needs its payload, so the type has to say `keep-payload`. It keeps the
attempts that it has had.

Exit 1: none could be run, nothing of it waits, or the topology was never
applied. 5: some could not.")]
pub(super) struct Args {
    #[command(flatten)]
    chosen: Chosen,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let words = Words { done: "Sent to run now".to_owned() };
    moving::run(common, &args.chosen, None, &words, output).await
}

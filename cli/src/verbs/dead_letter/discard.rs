//! `topology dead-letter discard`: removes letters, after they are written to a file.

use std::{path::PathBuf, sync::Arc};

use hatchery_admin::dead_letters::{Bounds, DeadLetters, Keep, Letter, LetterQueue, Sweep, Verb};

use super::{connection::with_letters, file::LetterFile, filters::Filters, report, served::Asked};
use crate::{
    args::{Common, UsageError},
    exit::Exit,
    output::Output,
    server::Server,
};

/// Remove letters, after writing them to a file
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology dead-letter discard --obsolete                   a dry run
  topology dead-letter discard --obsolete --save old.ndjson --yes
  topology dead-letter discard --type mail --until 2026-01-01T00:00:00Z \\
      --save mails.ndjson --yes
  topology publish --batch mails.ndjson                     publish them anew

The file gets a line for each letter before the letter leaves the queue.
`topology publish --batch` takes the file: it publishes new events with the same
type, reference and payload. A file that exists is continued.

Exit 1: no letter with this --id matches, or a queue is missing and no letter
was discarded. 4: a policy limits deliveries, so that a look could delete
letters. 5: stopped or failed half-way, letters were not seen because others
hold them or the broker is slow, or a queue is missing and letters of others
were discarded. 6: the broker or Redis is unreachable. 7: another
`topology dead-letter` reads the queue.")]
pub(crate) struct Args {
    #[command(flatten)]
    filters: Filters,

    /// Only letters whose event has run, was cancelled or was replaced since
    #[arg(long, help_heading = "Which letters")]
    obsolete: bool,

    /// Write the letters to this file first
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// The most letters to discard
    #[arg(long, value_name = "N")]
    limit: Option<u64>,

    /// Discard the letters; without --yes they are only counted
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    if args.yes && args.save.is_none() {
        return Err(UsageError("--yes needs --save: discarded letters are written to a file first".to_owned()).into());
    }
    if let Some(server) = Server::named(common)? {
        let mut fields = args.filters.fields()?;
        fields.insert("obsolete".to_owned(), args.obsolete.into());
        let asked = Asked { server: &server, filters: &args.filters, fields, verb: Verb::Discard, output };
        return match args.save.as_deref().filter(|_| args.yes) {
            Some(path) => asked.discard(args.limit, &LetterFile::open(path)?).await,
            None => asked.dry_run(args.limit).await,
        };
    }
    with_letters(common, &args.filters, output, async |letters, queues| discard(letters, queues, args, output).await)
        .await
}

async fn discard(all: &DeadLetters, queues: &[LetterQueue], args: &Args, output: Output) -> anyhow::Result<Exit> {
    let (filters, mut selection) = (&args.filters, args.filters.selection());
    selection.obsolete = args.obsolete;
    let Some(path) = args.save.as_deref().filter(|_| args.yes) else {
        return report::dry_run(all, queues, (filters, &selection), args.limit, Verb::Discard, output).await;
    };
    let file = LetterFile::open(path)?;
    let keep: Keep = Arc::new(move |letters: &[Letter]| file.write(letters));
    let bounds = Bounds { limit: args.limit, rate: None };
    let discard = async |sweep: Sweep<'_>| all.discard(sweep, Arc::clone(&keep)).await;
    report::sweep(queues, filters, Verb::Discard, output, (&selection, bounds), discard).await
}

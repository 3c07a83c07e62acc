//! `topology dead-letter`: looks at dead letters, replays them, discards them.

mod connection;
mod discard;
mod file;
mod filters;
mod list;
mod replay;
mod report;
mod served;
mod show;
#[cfg(test)]
mod tests;
mod view;

use clap::Subcommand;

pub(crate) use self::{
    list::{Answer as List, Line as ListLine},
    show::Answer as Show,
};

use crate::{args::Common, exit::Exit, output::Output};

/// Look at dead letters, replay them, or discard them
#[derive(Subcommand)]
#[command(after_long_help = "\
Examples:
  topology dead-letter list                      why events were given up
  topology dead-letter list --type mail --events
  topology dead-letter show ID
  topology dead-letter replay --reason timeout              a dry run
  topology dead-letter replay --reason timeout --yes
  topology dead-letter discard --obsolete --save old.ndjson --yes
  topology dead-letter list --unrouted           what no queue has taken

The letters are read from their queues, which are as before afterwards. Redis
only tells which letters are obsolete: their event has run, was cancelled or
was replaced since.")]
pub(crate) enum Verb {
    List(list::Args),
    Show(show::Args),
    Replay(replay::Args),
    Discard(discard::Args),
}

pub(crate) async fn run(common: &Common, verb: Verb, output: Output) -> anyhow::Result<Exit> {
    match verb {
        Verb::List(args) => list::run(common, &args, output).await,
        Verb::Show(args) => show::run(common, &args, output).await,
        Verb::Replay(args) => replay::run(common, &args, output).await,
        Verb::Discard(args) => discard::run(common, &args, output).await,
    }
}

//! `topology schedule`: shows the schedules, pauses and resumes them, and runs their events now.

mod act;
mod backfill;
mod list;
mod show;
#[cfg(test)]
mod tests;

use clap::Subcommand;

use crate::{args::Common, exit::Exit, output::Output};

/// Show the schedules, pause and resume them, and run their events now
#[derive(Subcommand)]
#[command(after_long_help = "\
Examples:
  topology schedule list
  topology schedule show nightly-import
  topology schedule pause nightly-import --reason \"the bank is closed\"
  topology schedule resume nightly-import
  topology schedule run-now nightly-import
  topology schedule backfill nightly-import --from \"7d ago\"

`topology apply` arms the schedules of the file. Redis has their state.")]
pub(crate) enum Verb {
    List(list::Args),
    Show(show::Args),
    Pause(act::PauseArgs),
    Resume(act::ResumeArgs),
    RunNow(act::RunNowArgs),
    Backfill(backfill::Args),
}

pub(crate) async fn run(common: &Common, verb: Verb, output: Output) -> anyhow::Result<Exit> {
    match verb {
        Verb::List(args) => list::run(common, &args, output).await,
        Verb::Show(args) => show::run(common, &args, output).await,
        Verb::Pause(args) => act::pause(common, &args, output).await,
        Verb::Resume(args) => act::resume(common, &args, output).await,
        Verb::RunNow(args) => act::run_now(common, &args, output).await,
        Verb::Backfill(args) => backfill::run(common, &args, output).await,
    }
}

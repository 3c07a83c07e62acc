//! `topology events`: finds events, and cancels or moves those that wait.

mod answer;
mod bulk;
mod cancel;
mod connection;
mod filters;
mod list;
mod moving;
mod paused;
mod show;
mod table;
#[cfg(test)]
mod tests;

use clap::Subcommand;
pub(crate) use hatchery_admin::location::Placed;

pub(crate) use self::{
    answer::{ChangedEvent as Changed, Changes, EventView},
    filters::Filters,
    list::Answer as List,
    show::{Answer as Show, known},
};
use crate::{args::Common, exit::Exit, output::Output};

/// Find waiting events, cancel them, or give them another time
#[derive(Subcommand)]
#[command(after_long_help = "\
Examples:
  topology events list
  topology events list --type hr-import --state retry --attempts 3
  topology events list --due-before 1h --reason timeout -o json
  topology events show --type hr-import --reference 1234
  topology events cancel --type hr-import --reference 1234
  topology events cancel --type hr-import --reference-prefix 12- --yes
  topology events reschedule --type mail --id ID --to 2026-06-01T09:00:00Z
  topology events run-now --type hr-import --reference 1234

Events that --reference or --id names are changed at once. Events that any other
filter finds are only shown, unless --yes is given.

Redis knows the events of all types except those with `register: off`. An event
that was published while Redis was away is reached only by its id.")]
pub(crate) enum Verb {
    List(list::Args),
    Show(show::Args),
    Cancel(cancel::Args),
    Reschedule(moving::RescheduleArgs),
    RunNow(moving::RunNowArgs),
}

pub(crate) async fn run(common: &Common, verb: Verb, output: Output) -> anyhow::Result<Exit> {
    match verb {
        Verb::List(args) => list::run(common, &args, output).await,
        Verb::Show(args) => show::run(common, &args, output).await,
        Verb::Cancel(args) => cancel::run(common, &args, output).await,
        Verb::Reschedule(args) => moving::reschedule(common, &args, output).await,
        Verb::RunNow(args) => moving::run_now(common, &args, output).await,
    }
}

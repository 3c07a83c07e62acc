//! `topology events`: what waits, and what people do to it.

mod answer;
mod applied;
mod bulk;
mod cancel;
mod list;
mod moving;
mod reschedule;
mod run_now;
mod show;
mod table;
mod which;

use std::time::Duration;

use clap::Subcommand;
use hatchery::{Events, Hatchery, Topology};

use super::{args::Common, connect, exit::Exit, output::Output};

/// Find events that wait, cancel them, give them another time
#[derive(clap::Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
#[command(after_help = "\
Examples:
  topology events list
  topology events list --type hr-import --state retry --attempts 3
  topology events list --due-before 1h --reason timeout -o json
  topology events show --type hr-import --reference 1234
  topology events cancel --type hr-import --reference 1234
  topology events cancel --type hr-import --reference-prefix 12- --yes
  topology events reschedule --type mail --id ID --to 2026-06-01T09:00:00Z
  topology events run-now --type hr-import --reference 1234

What is named by --reference or --id is done at once. What is found by any other
filter is only shown, until --yes says that it is to be done.

Redis knows the events of every type but those with `register: off`. What was
published while Redis was away is known by its id alone.")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    List(list::Args),
    Show(show::Args),
    Cancel(cancel::Args),
    Reschedule(reschedule::Args),
    RunNow(run_now::Args),
}

pub(crate) async fn run(common: &Common, args: Args, output: Output) -> anyhow::Result<Exit> {
    match args.verb {
        Verb::List(args) => list::run(common, &args, output).await,
        Verb::Show(args) => show::run(common, &args, output).await,
        Verb::Cancel(args) => cancel::run(common, &args, output).await,
        Verb::Reschedule(args) => reschedule::run(common, &args, output).await,
        Verb::RunNow(args) => run_now::run(common, &args, output).await,
    }
}

/// How long the broker may take to answer. What is asked here is Redis's to answer, so nobody waits longer than this for the broker.
const BROKER_LIMIT: Duration = Duration::from_secs(5);

/// The events, with a connection to Redis alone.
fn events(common: &Common, topology: Topology) -> anyhow::Result<Events> {
    connect::builder(common, topology, "topology events")?.events().map_err(connect::usage)
}

/// The events, for who changes them. The register refuses a broker that it is not the register of, so the broker is asked for its name
/// first. Without an answer the register decides nothing by it.
async fn events_of_broker(common: &Common, topology: Topology) -> anyhow::Result<(Events, Option<Hatchery>)> {
    let connecting = connect::connect(common, topology.clone(), "topology events");
    match tokio::time::timeout(BROKER_LIMIT, connecting).await {
        Ok(Ok(hatchery)) => Ok((hatchery.events(), Some(hatchery))),
        Ok(Err(error)) => {
            tracing::debug!(%error, "the broker's name is unknown");
            Ok((events(common, topology)?, None))
        }
        Err(_) => Ok((events(common, topology)?, None)),
    }
}

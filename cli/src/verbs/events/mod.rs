//! `topology events`: what waits, and what people do to it.

mod answer;
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
use hatchery::{Builder, ConnectError, Events, Hatchery, Topology};

use crate::{args::Common, connect, exit::Exit, output::Output};

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

Redis knows the events of every type but those with `register: off`. What it
has not heard of, because it was away, is reached by its id alone.")]
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

/// The events, for whoever does without a broker that is away.
///
/// One that answers is heeded: it may refuse this client, it says whether the topology was applied, and the register does not answer a broker
/// that it is not the register of.
async fn with_events(
    common: &Common,
    topology: Topology,
    output: Output,
    act: impl AsyncFnOnce(&Events) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let builder = connect::builder(common, topology, NAME)?;
    let away = match tokio::time::timeout(BROKER_LIMIT, connect_applied(builder.clone())).await {
        Ok(Ok(hatchery)) => return with_broker(hatchery, act).await,
        Ok(Err(ConnectError::Broker(error))) if error.is_transient() => error.to_string(),
        Ok(Err(error)) => return Err(connect::usage(error)),
        Err(_) => format!("the broker does not answer within {} s", BROKER_LIMIT.as_secs()),
    };
    output.warn(&format!(
        "{away}. Redis alone is asked: whether these are the events of this broker, and whether the topology was applied, is not known"
    ));
    act(&builder.events().map_err(connect::usage)?).await
}

/// The events, for whoever may have to publish.
async fn with_events_of_broker(
    common: &Common,
    topology: Topology,
    act: impl AsyncFnOnce(&Events) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let builder = connect::builder(common, topology, NAME)?;
    with_broker(connect_applied(builder).await.map_err(connect::usage)?, act).await
}

const NAME: &str = "topology events";

/// Connects to a broker that has the topology.
async fn connect_applied(builder: Builder) -> Result<Hatchery, ConnectError> {
    let hatchery = builder.connect().await?;
    if let Err(error) = hatchery.require_topology().await {
        hatchery.close().await;
        return Err(error.into());
    }
    Ok(hatchery)
}

async fn with_broker(
    hatchery: Hatchery,
    act: impl AsyncFnOnce(&Events) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let exit = act(&hatchery.events()).await;
    hatchery.close().await;
    exit
}

//! `topology breaker`: shows the circuit breakers, and closes one.

mod list;

use clap::Subcommand;
use hatchery_admin::breakers::{Breakers, ClosedBreaker};

use crate::{args::Common, connect, exit::Exit, load, output::Output};

/// Show the circuit breakers, and close one
#[derive(Subcommand)]
#[command(after_long_help = "\
Examples:
  topology breaker list
  topology breaker close payment

A type with the key `breaker` stops after too many errors in all workers. Redis
has the state. To stop a type by hand, pause it.")]
pub(crate) enum Verb {
    List(list::Args),
    Close(CloseArgs),
}

/// Close the circuit breaker of a type: its events start as usual
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology breaker close payment

Workers start the events that wait within a second. The errors from before do
not count any more.")]
pub(crate) struct CloseArgs {
    /// The type
    #[arg(value_name = "TYPE")]
    event_type: String,
}

pub(crate) async fn run(common: &Common, verb: Verb, output: Output) -> anyhow::Result<Exit> {
    let breakers = Breakers(connect::events(common, load::topology(common, output)?, "topology breaker")?);
    match verb {
        Verb::List(list::Args {}) => list::run(&breakers, output).await,
        Verb::Close(args) => close(&breakers, &args, output).await,
    }
}

async fn close(breakers: &Breakers, args: &CloseArgs, output: Output) -> anyhow::Result<Exit> {
    let (event_type, changed) = (&args.event_type, breakers.close(&args.event_type).await?);
    breakers.0.flush().await;
    let done = if changed { "is closed" } else { "was not open" };
    let answer = ClosedBreaker { event_type: event_type.clone(), changed };
    output.answer(&answer, || format!("The circuit breaker of {event_type} {done}.\n"))?;
    Ok(Exit::Done)
}

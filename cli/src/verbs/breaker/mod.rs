//! `topology breaker`: shows the circuit breakers, and closes one.

mod close;
mod list;

use clap::Subcommand;
use hatchery_admin::breakers::Breakers;

use crate::{args::Common, connect, exit::Exit, load, output::Output};

/// Show the circuit breakers, and close one
#[derive(clap::Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
#[command(after_long_help = "\
Examples:
  topology breaker list
  topology breaker close payment

A type with the key `breaker` stops after too many errors in all workers. Redis
has the state. To stop a type by hand, pause it.")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    List(list::Args),
    Close(close::Args),
}

pub(crate) async fn run(common: &Common, args: Args, output: Output) -> anyhow::Result<Exit> {
    let breakers = Breakers(connect::events(common, load::topology(common, output)?, "topology breaker")?);
    match args.verb {
        Verb::List(list::Args {}) => list::run(&breakers, output).await,
        Verb::Close(args) => close::run(&breakers, &args, output).await,
    }
}

//! `topology breaker close`.

use hatchery_admin::breakers::{Breakers, ClosedBreaker};

use crate::{exit::Exit, output::Output};

/// Close the circuit breaker of a type: its events start as usual
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology breaker close payment

Workers start the events that wait within a second. The errors from before do
not count any more.")]
pub(super) struct Args {
    /// The type
    #[arg(value_name = "TYPE")]
    event_type: String,
}

pub(super) async fn run(breakers: &Breakers, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let (event_type, changed) = (&args.event_type, breakers.close(&args.event_type).await?);
    breakers.0.flush().await;
    let done = if changed { "is closed" } else { "was not open" };
    let answer = ClosedBreaker { event_type: event_type.clone(), changed };
    output.answer(&answer, || format!("The circuit breaker of {event_type} {done}.\n"))?;
    Ok(Exit::Done)
}

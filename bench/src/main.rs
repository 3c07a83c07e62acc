//! `scripts/bench` measures what an event costs with hatchery, beside bare lapin. `scripts/bench --help` says more.
//!
//! - [`cases`]: what is measured, a file a kind of case.
//! - [`ours`] and [`bare`]: the two sides, the library and bare lapin.
//! - [`consumer`] and [`handled`]: a consumer that is there before its events are due, and the account of what was handled.
//! - [`meter`]: the time and the CPU time of a part of a run, and percentiles of how long an event's steps take.
//! - [`peers`]: other job queues beside hatchery.
//! - [`rounds`]: the sides in turns, and their medians.
//! - [`report`]: the table, and the file with every round.

mod args;
mod bare;
mod cases;
mod child;
mod consumer;
mod handled;
mod load;
mod meter;
mod ours;
mod peers;
mod report;
mod rounds;
mod surroundings;
mod topology;

use std::process::ExitCode;

use clap::Parser as _;
use hatchery_soak::console::{Console, RED};

use self::{args::Args, cases::Case, rounds::Results, surroundings::Surroundings};

#[tokio::main]
async fn main() -> ExitCode {
    // Fails if a provider is installed already; that one serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let args = Args::parse();
    let mut console = Console::new();
    let ended = run(&args, &mut console).await;
    console.end_progress();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("{RED}bench:{RED:#} {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args, console: &mut Console) -> anyhow::Result<()> {
    if let Some(side) = args.child {
        return child::run(args, side).await;
    }
    let mut cases = cases::selected(&args.cases)?;
    if args.list {
        report::list(&cases, console);
        return Ok(());
    }
    if args.peers && args.cases.is_empty() {
        cases.clear();
    }
    let mut around = Surroundings::start(args, console).await?;
    let (cases, mut ended) = measure(args, &cases, &around, console).await;
    let mut peers = Vec::new();
    if args.peers && ended.is_ok() {
        match peers::run(args, &mut around, console).await {
            Ok(all) => peers = all,
            Err(error) => ended = Err(error),
        }
    }
    if !cases.is_empty() {
        report::print(&cases, console);
        report::print_latencies(&cases, console);
    }
    if !peers.is_empty() {
        peers::print(&peers, console);
    }
    report::print_about(&around.about, console);
    if let Some(file) = &args.json {
        report::write(file, args, &around.about, &cases, &peers)?;
    }
    around.stage.end(console, ended.is_ok()).await;
    ended
}

/// Returns the results of all cases up to the first that fails, whose leftovers would falsify the next one.
async fn measure(
    args: &Args,
    cases: &[&Case],
    around: &Surroundings,
    console: &mut Console,
) -> (Vec<Results>, anyhow::Result<()>) {
    let mut all = Vec::new();
    for case in cases {
        console.step(&format!("{}: {}", case.name, case.about));
        match Results::run(args, case, around, console).await {
            Ok(results) => all.push(results),
            Err(error) => return (all, Err(error)),
        }
    }
    (all, Ok(()))
}

//! This program as a child process of a soak: a worker or a publisher. Each child ends when its standard input ends, so
//! none outlives its parent.

mod feeder;
mod worker;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use hatchery::{CancellationToken, ConnectError, Hatchery};
use hatchery_soak::stage::connect_from_environment;
use tokio::io::AsyncReadExt as _;
use tracing_subscriber::filter::LevelFilter;

use super::notes::Pen;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name that it writes into its notes
    #[arg(long)]
    name: u32,
    /// The file for its notes
    #[arg(long)]
    notes: PathBuf,
    #[command(subcommand)]
    kind: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    /// Works until its standard input ends
    Worker(worker::Args),
    /// Publishes as fast as it can until its standard input ends
    Feeder(feeder::Args),
}

pub(crate) async fn main(args: Args) -> ExitCode {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        let mut input = Vec::new();
        let _ = tokio::io::stdin().read_to_end(&mut input).await;
        stopped.cancel();
    });
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_ansi(false).with_writer(std::io::stderr).init();
    match act(args, stop).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

async fn act(args: Args, stop: CancellationToken) -> anyhow::Result<()> {
    let pen = Pen::open(&args.notes, args.name)?;
    let name = format!("soak child {}", args.name);
    let Some(hatchery) = stop.run_until_cancelled(connect(&name)).await else { return Ok(()) };
    let hatchery = hatchery?;
    match args.kind {
        Kind::Worker(args) => worker::run(args, &hatchery, pen, stop).await?,
        Kind::Feeder(args) => feeder::run(&args, &hatchery, &pen, stop).await?,
    }
    hatchery.close().await;
    Ok(())
}

/// Connects, within a minute. A soak may start a child while the broker restarts.
async fn connect(name: &str) -> anyhow::Result<Hatchery> {
    let until = std::time::Instant::now() + Duration::from_mins(1);
    loop {
        match connect_from_environment(name).await {
            Err(error) if is_transient(&error) && std::time::Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            connected => return connected,
        }
    }
}

fn is_transient(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ConnectError::Broker(error)) if error.is_transient())
}

//! This program as a child process of a soak: a worker or a publisher. Each child ends when its standard input ends, so
//! none outlives its parent.

mod feeder;
mod worker;

use std::process::ExitCode;

use hatchery::CancellationToken;
use tokio::io::AsyncReadExt as _;
use tracing_subscriber::filter::LevelFilter;

#[derive(clap::Args)]
pub(crate) struct Args {
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

pub(crate) async fn main(args: &Args) -> ExitCode {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        let mut input = Vec::new();
        let _ = tokio::io::stdin().read_to_end(&mut input).await;
        stopped.cancel();
    });
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_ansi(false).with_writer(std::io::stderr).init();
    let ended = match &args.kind {
        Kind::Worker(args) => worker::run(args, stop).await,
        Kind::Feeder(args) => feeder::run(args, stop).await,
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

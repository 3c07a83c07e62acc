//! A child process with a worker that takes the messages of sources.

use hatchery::CancellationToken;

use crate::stage::connect_from_environment;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The name of its connections
    #[arg(long)]
    name: u32,
    /// The sources
    #[arg(long)]
    sources: Vec<String>,
}

pub(super) async fn run(args: &Args, stop: CancellationToken) -> anyhow::Result<()> {
    let hatchery = connect_from_environment(&format!("soak source {}", args.name)).await?;
    let worker = args.sources.iter().fold(hatchery.worker(), |worker, name| worker.source(name));
    worker.run(stop).await?;
    hatchery.close().await;
    Ok(())
}

//! Starts this program as child processes: workers and a publisher. Each child ends when its standard input ends, so
//! none outlives its parent.

mod feeder;
mod scheduled;
mod source;
mod worker;

use std::{
    fs::File,
    path::PathBuf,
    process::{ExitCode, Stdio},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use hatchery::CancellationToken;
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, ChildStdin, Command},
};
use tracing_subscriber::filter::LevelFilter;

use crate::stage::Stage;

/// How long a child may take to stop: longer than a worker's drain timeout.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    /// Works until its standard input ends
    Worker(worker::Args),
    /// Takes the messages of sources until its standard input ends
    Source(source::Args),
    /// Runs the events of schedules until its standard input ends
    Scheduled(scheduled::Args),
    /// Publishes as fast as it can until its standard input ends
    Feeder(feeder::Args),
}

/// The child's side.
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
        Kind::Source(args) => source::run(args, stop).await,
        Kind::Scheduled(args) => scheduled::run(args, stop).await,
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

/// The parent's side.
pub(crate) struct Process {
    /// The child's name in its notes.
    pub(crate) name: u32,
    child: Child,
    input: ChildStdin,
    log: PathBuf,
}

impl Process {
    /// Starts a child of this kind with further arguments. Its log goes to a file.
    pub(crate) fn start(stage: &Stage, kind: &str, name: u32, arguments: &[String]) -> anyhow::Result<Self> {
        let log = stage.path(&format!("{kind}-{name}.log"));
        let mut command = Command::new(std::env::current_exe()?);
        stage.with_urls(&mut command).args(["child", kind, "--name", &name.to_string()]).args(arguments);
        // In a process group of its own, so that Ctrl-C reaches only the parent; the child ends with its standard
        // input.
        command.stdin(Stdio::piped()).stderr(File::create(&log)?).process_group(0);
        let mut child = command.spawn()?;
        let input = child.stdin.take().context("a pipe")?;
        Ok(Self { name, child, input, log })
    }

    /// Kills the child with SIGKILL, and waits for its end.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.require_alive()?;
        Ok(self.child.kill().await?)
    }

    /// Stops the child, and waits for its end. Fails if its exit status is not 0.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.input);
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = ended.with_context(|| format!("{} does not stop", self.log.display()))??;
        ensure!(status.success(), "{status}: {}", std::fs::read_to_string(&self.log)?);
        Ok(())
    }

    pub(crate) fn require_alive(&mut self) -> anyhow::Result<()> {
        let ended = self.child.try_wait()?;
        let said = || std::fs::read_to_string(&self.log).unwrap_or_default();
        ensure!(ended.is_none(), "a process has ended by itself: {}", said());
        Ok(())
    }

    /// Returns the child's resident memory in KiB.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        let id = self.child.id().context("the process has ended")?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

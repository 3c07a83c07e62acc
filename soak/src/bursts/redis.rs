//! Starts a Redis server that can be killed and started again at the same port.

use std::{net::TcpListener, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use redis::Client;
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::Instant,
};

use crate::harness::connect_to_redis;

/// How long Redis may take to answer after its start.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Redis {
    port: u16,
    folder: TempDir,
    running: Child,
}

impl Redis {
    /// Starts Redis with an append-only file that is synced every second, which is Redis's default if it persists data.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = TempDir::new()?;
        let running = run(port, &folder)?;
        let mut redis = Self { port, folder, running };
        redis.is_there().await?;
        Ok(redis)
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills Redis with SIGKILL.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        drop(self.running.stdin.take());
        self.running.wait().await?;
        Ok(())
    }

    /// Starts Redis again with the data on its disk.
    pub(super) async fn start_again(&mut self) -> anyhow::Result<()> {
        self.running = run(self.port, &self.folder)?;
        self.is_there().await
    }

    /// Starts Redis again with an empty folder.
    pub(super) async fn start_empty(&mut self) -> anyhow::Result<()> {
        self.folder = TempDir::new()?;
        self.start_again().await
    }

    pub(super) async fn flush(&self) -> anyhow::Result<()> {
        let mut connection = connect_to_redis(&self.url()).await?;
        Ok(redis::cmd("FLUSHALL").query_async(&mut connection).await?)
    }

    async fn is_there(&mut self) -> anyhow::Result<()> {
        let limit = Instant::now() + PATIENCE;
        let client = Client::open(self.url())?;
        loop {
            if let Ok(mut connection) = client.get_multiplexed_async_connection().await
                && redis::cmd("PING").query_async::<()>(&mut connection).await.is_ok()
            {
                return Ok(());
            }
            ensure!(self.running.try_wait()?.is_none(), "redis-server has ended");
            ensure!(Instant::now() < limit, "redis-server does not answer within {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Starts Redis through a shell that kills it when its standard input ends. So Redis ends with this process, however
/// this process ends.
fn run(port: u16, folder: &TempDir) -> anyhow::Result<Child> {
    let script = "redis-server \"$@\" & pid=$!; cat >/dev/null; kill -9 $pid; wait $pid";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", "--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
    command.args(["--appendonly", "yes", "--appendfsync", "everysec"]).arg("--dir").arg(folder.path());
    // In a process group of its own, so that Ctrl-C reaches only this process.
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn().context("redis-server; it has to be installed (Debian: apt-get install redis-server)")
}

//! A Redis that is killed and started again at the same port.

use std::fs;

use crate::harness::{Hold, connect_to_redis};

pub(super) struct Redis {
    pub(super) url: String,
    /// The folder of its data.
    folder: String,
    hold: Hold,
}

impl Redis {
    /// Starts Redis with an append-only file that is synced every second, which is Redis's default if it persists data.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let hold = Hold::redis("appendonly yes\n").await?;
        let url = hold.said("REDIS_URL")?;
        let mut connection = connect_to_redis(&url).await?;
        let (_, folder): (String, String) =
            redis::cmd("CONFIG").arg(&["GET", "dir"]).query_async(&mut connection).await?;
        Ok(Self { url, folder, hold })
    }

    /// Kills Redis with SIGKILL.
    pub(super) async fn kill(&mut self) -> anyhow::Result<()> {
        self.hold.tell("kill redis").await
    }

    /// Starts Redis again with the data on its disk.
    pub(super) async fn start_again(&mut self) -> anyhow::Result<()> {
        self.hold.tell("start redis").await
    }

    /// Starts Redis again without its data.
    pub(super) async fn start_empty(&mut self) -> anyhow::Result<()> {
        fs::remove_dir_all(&self.folder)?;
        self.start_again().await
    }

    pub(super) async fn flush(&self) -> anyhow::Result<()> {
        let mut connection = connect_to_redis(&self.url).await?;
        Ok(redis::cmd("FLUSHALL").query_async(&mut connection).await?)
    }

    pub(super) async fn end(self) {
        self.hold.end().await;
    }
}

//! Starts a Redis for this run only, and reads its statistics.

use anyhow::Context as _;
use redis::aio::MultiplexedConnection;

use crate::harness::{Hold, connect_to_redis};

pub(super) struct Server {
    pub(super) url: String,
    hold: Hold,
    connection: MultiplexedConnection,
}

/// The CPU time that Redis has used, in seconds. Unlike elapsed time, it does not grow with other work on the machine.
#[derive(Clone, Copy)]
pub(super) struct Busy(f64);

impl Busy {
    /// Returns the CPU time since `before` for each event, in µs.
    pub(super) fn since(self, before: Self, events: u32) -> f64 {
        (self.0 - before.0) * 1e6 / f64::from(events)
    }
}

impl Server {
    pub(super) async fn start() -> anyhow::Result<Self> {
        let hold = Hold::redis("").await?;
        let url = hold.said("REDIS_URL")?;
        let connection = connect_to_redis(&url).await?;
        Ok(Self { url, hold, connection })
    }

    pub(super) async fn version(&mut self) -> anyhow::Result<String> {
        self.info("server", "redis_version").await
    }

    /// Returns the bytes of memory in use.
    pub(super) async fn memory(&mut self) -> anyhow::Result<u64> {
        Ok(self.info("memory", "used_memory").await?.parse()?)
    }

    pub(super) async fn busy(&mut self) -> anyhow::Result<Busy> {
        let user: f64 = self.info("cpu", "used_cpu_user_main_thread").await?.parse()?;
        let system: f64 = self.info("cpu", "used_cpu_sys_main_thread").await?.parse()?;
        Ok(Busy(user + system))
    }

    /// Returns how long scripts have run so far, in µs.
    pub(super) async fn scripts(&mut self) -> anyhow::Result<f64> {
        let told = self.info("commandstats", "cmdstat_evalsha").await?;
        let took = told.split(',').find_map(|field| field.strip_prefix("usec="));
        Ok(took.context("Redis does not report the time of scripts")?.parse()?)
    }

    pub(super) async fn flush(&mut self) -> anyhow::Result<()> {
        Ok(redis::cmd("FLUSHALL").query_async(&mut self.connection).await?)
    }

    async fn info(&mut self, section: &str, name: &str) -> anyhow::Result<String> {
        let told: String = redis::cmd("INFO").arg(section).query_async(&mut self.connection).await?;
        let line = told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(line.with_context(|| format!("Redis does not report {name}"))?.to_owned())
    }

    pub(super) async fn end(self) {
        self.hold.end().await;
    }
}

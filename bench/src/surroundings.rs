//! The surroundings of all cases: servers of their own with the topology, and the meter of their processes.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use hatchery::{Hatchery, internals::compile};
use hatchery_soak::{console::Console, servers::connect_to_redis, stage::Stage};
use lapin::options::QueuePurgeOptions;
use rustix::process::{Pid, Signal, kill_process};

use crate::{args::Args, bare::Bare, load::INSTANT, meter::Meter, topology};

pub(crate) struct Surroundings {
    pub(crate) stage: Stage,
    pub(crate) meter: Meter,
    pub(crate) about: About,
    /// The TTL of the named hatchery.
    pub(crate) hatchery_ttl: Duration,
    queues: Vec<String>,
}

/// The surroundings that a figure depends on besides the program.
#[derive(serde::Serialize)]
pub(crate) struct About {
    pub(crate) rabbitmq: String,
    pub(crate) redis: String,
    pub(crate) cores: usize,
    /// The machine's load average of one minute at the start, as `/proc/loadavg` has it.
    pub(crate) load_at_start: String,
}

impl Surroundings {
    pub(crate) async fn start(args: &Args, console: &mut Console) -> anyhow::Result<Self> {
        let load_at_start = load_average();
        let hatchery_ttl = args.load(INSTANT).wait();
        let stage = Stage::set(console, args.version.as_deref(), &topology::text(args, hatchery_ttl)).await?;
        let meter = Meter::of(&stage.servers.amqp, &stage.servers.redis).await?;
        // A stream cannot be purged, and holds no events.
        let queues = compile::compile(&stage.topology)?.queues.into_iter().filter(|queue| !queue.is_stream());
        let queues = queues.map(|queue| queue.name).collect();
        let about = About {
            rabbitmq: stage.version.clone(),
            redis: redis_version(&stage.servers.redis).await?,
            cores: std::thread::available_parallelism()?.get(),
            load_at_start,
        };
        Ok(Self { stage, meter, about, hatchery_ttl, queues })
    }

    /// Empties all queues and Redis, so that each side begins with the same state.
    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        let bare = self.bare().await?;
        for queue in &self.queues {
            bare.channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default()).await?;
        }
        bare.close().await?;
        let mut redis = connect_to_redis(&self.stage.servers.redis).await?;
        Ok(redis::cmd("FLUSHALL").query_async(&mut redis).await?)
    }

    /// Connects the library, and makes sure that Redis answers.
    pub(crate) async fn hatchery(&self) -> anyhow::Result<Hatchery> {
        let hatchery = self.stage.builder().amqp_url(self.amqp()).name("bench").connect().await?;
        hatchery.require_register().await?;
        Ok(hatchery)
    }

    /// Connects bare lapin.
    pub(crate) async fn bare(&self) -> anyhow::Result<Bare> {
        Bare::connect(&self.amqp()).await
    }

    /// Pauses the broker until this time, and until the result is dropped, so that what becomes due in the meantime is due at one instant.
    pub(crate) async fn pause_broker(&self, until: Instant) -> anyhow::Result<Paused> {
        Paused::until(self.meter.broker(), until).await
    }

    /// Returns the AMQP URL with a heartbeat so long that no side notices when the broker is paused.
    fn amqp(&self) -> String {
        format!("{}?heartbeat=600", self.stage.servers.amqp)
    }
}

/// The broker does not run until this is dropped.
pub(crate) struct Paused(Pid);

impl Paused {
    /// Stops the broker's process until this time.
    async fn until(broker: u32, time: Instant) -> anyhow::Result<Self> {
        let pid = Pid::from_raw(broker.cast_signed()).context("0 is no process")?;
        kill_process(pid, Signal::STOP).context("cannot pause the broker")?;
        let paused = Self(pid);
        tokio::time::sleep_until(time.into()).await;
        Ok(paused)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // Fails if the broker has ended. The connections show that.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Returns the load average of the last minute.
pub(crate) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

async fn redis_version(url: &str) -> anyhow::Result<String> {
    let mut redis = connect_to_redis(url).await?;
    let told: String = redis::cmd("INFO").arg("server").query_async(&mut redis).await?;
    let version = told.lines().find_map(|line| line.strip_prefix("redis_version:"));
    Ok(version.unwrap_or("of an unknown version").to_owned())
}

//! Measures the time and the CPU time of a part of a run, and how long the steps of its events take.

mod processes;

use std::{
    ops::Sub,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use hatchery_soak::lateness::Lateness;
use serde::Serialize;
use url::Url;

/// CPU time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Cpu {
    /// This process, or the child process that is measured: the library or bare lapin, and what makes the load. For a peer: its
    /// program with all its processes.
    pub(crate) client: f64,
    /// RabbitMQ with all its processes.
    pub(crate) broker: f64,
    pub(crate) redis: f64,
}

impl Cpu {
    pub(crate) fn map(self, to: impl Fn(f64) -> f64) -> Self {
        Self { client: to(self.client), broker: to(self.broker), redis: to(self.redis) }
    }
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            client: self.client - before.client,
            broker: self.broker - before.broker,
            redis: self.redis - before.redis,
        }
    }
}

/// The work of one side of a case in one round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) events: u32,
    pub(crate) seconds: f64,
    pub(crate) events_per_second: f64,
    /// For each event, in microseconds.
    pub(crate) cpu_micros_per_event: Cpu,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) figures: Vec<Figure>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) latencies: Vec<Latency>,
}

/// How long a step of an event takes, as percentiles in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) step: &'static str,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

impl Latency {
    /// Takes the percentiles of these times, which are in microseconds.
    pub(crate) fn of(step: &'static str, micros: impl IntoIterator<Item = i64>) -> anyhow::Result<Self> {
        let times = Lateness::of(micros);
        let millis = |permille| anyhow::Ok(f64::from(i32::try_from(times.permille(permille))?) / 1e3);
        Ok(Self { step, p50: millis(500)?, p99: millis(990)?, p999: millis(999)? })
    }
}

/// A figure of a case besides its rate and its CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) what: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

impl Measured {
    /// Returns this with a rate that the client has measured itself.
    pub(crate) fn at(self, events_per_second: f64) -> Self {
        Self { events_per_second, seconds: f64::from(self.events) / events_per_second, ..self }
    }

    /// Adds a figure.
    pub(crate) fn with(mut self, what: &'static str, value: f64, unit: &'static str) -> Self {
        self.figures.push(Figure { what, value, unit });
        self
    }
}

/// Knows the processes whose CPU time is measured.
pub(crate) struct Meter {
    broker: u32,
    redis: u32,
    micros_per_tick: f64,
}

impl Meter {
    /// Finds the processes of the servers with these URLs, which run on this machine.
    pub(crate) async fn of(amqp: &str, redis: &str) -> anyhow::Result<Self> {
        let port = Url::parse(amqp)?.port().context("the AMQP URL has no port")?;
        let mut connection = hatchery_soak::servers::connect_to_redis(redis).await?;
        let told: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let redis = told.lines().find_map(|line| line.strip_prefix("process_id:"));
        #[expect(clippy::cast_precision_loss, reason = "100 on nearly every machine")]
        let micros_per_tick = 1e6 / rustix::param::clock_ticks_per_second() as f64;
        Ok(Self {
            broker: processes::listening_on(port)?,
            redis: redis.context("Redis does not report its process")?.parse()?,
            micros_per_tick,
        })
    }

    /// Returns the broker's process.
    pub(crate) const fn broker(&self) -> u32 {
        self.broker
    }

    /// Begins to measure, with this process as the client.
    pub(crate) fn begin(&self) -> anyhow::Result<Measuring<'_>> {
        self.begin_client(Client::This)
    }

    /// Begins to measure, with another process and all that it starts as the client.
    pub(crate) fn begin_with(&self, pid: u32) -> anyhow::Result<Measuring<'_>> {
        self.begin_client(Client::Tree(pid))
    }

    fn begin_client(&self, client: Client) -> anyhow::Result<Measuring<'_>> {
        Ok(Measuring { meter: self, client, before: self.read(client)?, started: Instant::now(), took: None })
    }

    fn read(&self, client: Client) -> anyhow::Result<Cpu> {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        let micros = |ticks: processes::Ticks| ticks as f64 * self.micros_per_tick;
        Ok(Cpu {
            client: micros(match client {
                Client::This => processes::of_process(std::process::id())?,
                Client::Tree(pid) => processes::of_tree(pid)?,
            }),
            broker: micros(processes::of_tree(self.broker)?),
            redis: micros(processes::of_process(self.redis)?),
        })
    }
}

/// Whose CPU time is the client's.
#[derive(Clone, Copy)]
enum Client {
    This,
    /// The process with this id, and all that it starts.
    Tree(u32),
}

/// A measurement that has begun.
pub(crate) struct Measuring<'a> {
    meter: &'a Meter,
    client: Client,
    before: Cpu,
    started: Instant,
    took: Option<Duration>,
}

impl Measuring<'_> {
    /// Takes this process for the client, all of whose CPU time counts, in place of the own one.
    pub(crate) const fn set_client(&mut self, process: u32) {
        (self.client, self.before.client) = (Client::Tree(process), 0.0);
    }

    /// Stops the clock. The CPU time counts until [`end`](Self::end), because some work follows the last event.
    pub(crate) fn stop_clock(&mut self) {
        self.took = Some(self.started.elapsed());
    }

    /// Ends the measurement. The clock stopped at this moment, which has passed.
    pub(crate) fn end_at(mut self, at: Instant, events: u32) -> anyhow::Result<Measured> {
        self.took = Some(at.saturating_duration_since(self.started));
        self.end(events)
    }

    pub(crate) fn end(self, events: u32) -> anyhow::Result<Measured> {
        let took = self.took.unwrap_or_else(|| self.started.elapsed());
        let seconds = took.as_secs_f64().max(1e-6);
        let cpu = self.meter.read(self.client)? - self.before;
        Ok(Measured {
            events,
            seconds,
            events_per_second: f64::from(events) / seconds,
            cpu_micros_per_event: cpu.map(|micros| micros / f64::from(events)),
            figures: Vec::new(),
            latencies: Vec::new(),
        })
    }
}

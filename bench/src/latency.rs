//! How long the steps of an event take: percentiles.

use hatchery_soak::lateness::Lateness;
use serde::Serialize;

/// How long a step takes, in milliseconds.
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

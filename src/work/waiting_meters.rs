//! The metric of how long the oldest due event of each type waits. Every worker reads it from Redis, also for types that it does not
//! handle.

use std::time::Duration;

use metrics::{Gauge, gauge};
use tokio::time::Instant;

use super::common::Common;
use crate::{
    domain::{spec::Topology, words::EventType},
    meter,
};

/// The time between two readings.
const APART: Duration = Duration::from_secs(30);

pub(super) struct WaitingMeters {
    types: Vec<EventType>,
    gauges: Vec<Gauge>,
    next: Instant,
}

impl WaitingMeters {
    pub(super) fn new(topology: &Topology) -> Self {
        let registered = topology.types.iter().filter(|(_, spec)| spec.register);
        let types: Vec<EventType> = registered.map(|(name, _)| name.clone()).collect();
        let gauges = types.iter().map(|name| gauge!(meter::OLDEST_DUE, "type" => name.to_string())).collect();
        Self { types, gauges, next: Instant::now() }
    }

    /// Reads how long events wait, if it is time to. While Redis does not answer, the metrics stay as they are.
    pub(super) async fn read(&mut self, common: &Common) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + APART;
        let now = common.clock.shared();
        match common.register.oldest_due(&self.types, now).await {
            Ok(oldest) => {
                for (gauge, due) in self.gauges.iter().zip(oldest) {
                    gauge.set(due.map_or(f64::NAN, |due| now.duration_since(due).as_secs_f64()));
                }
            }
            Err(error) => tracing::debug!(%error, "how long events wait is not read"),
        }
    }
}

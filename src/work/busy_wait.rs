//! The wait in memory of an event whose reference is busy.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

/// How long an event whose reference is busy waits in memory at most, before it goes through the busy hatchery.
const IN_MEMORY: Duration = Duration::from_secs(1);

/// The places in memory for events whose reference is busy.
#[derive(Default)]
pub(super) struct BusyPlaces(Arc<()>);

impl BusyPlaces {
    /// Returns the number of events that wait.
    pub(super) fn taken(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// The wait of an event in memory for its reference. It has a place until it is dropped.
pub(super) struct BusyWait {
    _place: Arc<()>,
    end: Instant,
    pauses: ExponentialBackoff,
}

impl BusyWait {
    pub(super) fn new(places: &BusyPlaces) -> Self {
        Self { _place: Arc::clone(&places.0), end: Instant::now() + IN_MEMORY, pauses: looks_at_busy().build() }
    }

    /// Returns when to claim again. `None` if the event has waited long enough.
    pub(super) fn next(&mut self) -> Option<Instant> {
        let now = Instant::now();
        (now < self.end).then(|| (now + self.pauses.next().unwrap_or_default()).min(self.end))
    }
}

/// The pauses between two claims of an event whose reference is busy.
pub(super) fn looks_at_busy() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(25))
        .with_max_delay(Duration::from_millis(200))
        .without_max_times()
        .with_jitter()
}

//! The wait in memory of an event whose reference is busy.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

/// How long an event whose reference is busy waits in memory at most, before it goes through the busy hatchery.
const IN_MEMORY: Duration = Duration::from_secs(1);

/// The wait of an event in memory for its reference.
pub(super) struct BusyWait {
    end: Instant,
    pauses: ExponentialBackoff,
}

impl BusyWait {
    pub(super) fn new() -> Self {
        Self { end: Instant::now() + IN_MEMORY, pauses: looks().build() }
    }

    /// Returns when to claim again. `None` if the event has waited long enough.
    pub(super) fn next(&mut self) -> Option<Instant> {
        let now = Instant::now();
        (now < self.end).then(|| (now + self.pauses.next().unwrap_or_default()).min(self.end))
    }
}

/// The pauses between two claims of an event whose reference is busy.
pub(super) fn looks() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(25))
        .with_max_delay(Duration::from_millis(200))
        .without_max_times()
        .with_jitter()
}

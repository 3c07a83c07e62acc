//! The time of day in a runtime whose time is paused.

use jiff::Timestamp;
use tokio::time::Instant;

use crate::{
    domain::time::{ceil_millis, later},
    ports::Clock,
};

/// A clock whose time of day moves with tokio's paused time.
pub(super) struct PausedClock {
    base: Timestamp,
    began: Instant,
}

impl PausedClock {
    /// The clock counts whole milliseconds, because tokio's timers do.
    pub(super) fn starting_at(now: Timestamp) -> Self {
        assert!(
            is_paused(),
            "`TestHatchery` is for runtimes whose time is paused: begin the test with `#[tokio::test(start_paused = true)]`"
        );
        Self { base: ceil_millis(now), began: Instant::now() }
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        later(self.base, self.began.elapsed())
    }
}

/// Whether tokio's time is paused.
fn is_paused() -> bool {
    let (paused, moving) = (Instant::now(), std::time::Instant::now());
    while moving.elapsed().is_zero() {
        std::hint::spin_loop();
    }
    paused.elapsed().is_zero()
}

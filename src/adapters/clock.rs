//! The system's clock.

use jiff::Timestamp;

use crate::ports::Clock;

/// The time of day as this machine has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

//! The system's clock.

use jiff::Timestamp;

use crate::ports::Clock;

/// Tells the time by the clock of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

//! A clock that stands still until a test advances it.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use hatchery::internals::ports::Clock;
use jiff::Timestamp;

/// Starts in the year 2100, so that no key with an expiry by this clock expires in a real Redis during the test.
#[derive(Debug)]
pub(crate) struct TestClock(AtomicI64);

impl Default for TestClock {
    fn default() -> Self {
        Self(AtomicI64::new(4_102_444_800_000_001))
    }
}

impl TestClock {
    pub(crate) fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.0.load(Ordering::SeqCst)).unwrap()
    }
}

//! A clock that stands still until a test advances it, and programs with a wrong clock.

use std::{
    path::Path,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use hatchery::internals::ports::Clock;
use jiff::Timestamp;
use tokio::process::Command;

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

/// Gives a program a clock that is wrong by this, as `faketime` understands it. Waiting takes as long as it does.
pub(crate) fn wrong<'c>(command: &'c mut Command, clock: &str) -> &'c mut Command {
    let library = format!("/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1", std::env::consts::ARCH);
    assert!(Path::new(&library).exists(), "there is no {library}: `scripts/services install --python`");
    command.env("LD_PRELOAD", library).env("FAKETIME", clock).env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
}

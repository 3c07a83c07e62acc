//! Pauses the broker, so that what becomes due in the meantime is due at one instant.

use std::time::Instant;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

/// The broker does not run until this is dropped.
pub(crate) struct Paused(Pid);

impl Paused {
    /// Stops the broker's process until this time.
    pub(crate) async fn until(broker: u32, time: Instant) -> anyhow::Result<Self> {
        let pid = Pid::from_raw(broker.cast_signed()).context("0 is no process")?;
        kill_process(pid, Signal::STOP).context("cannot pause the broker")?;
        let paused = Self(pid);
        tokio::time::sleep_until(time.into()).await;
        Ok(paused)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // Fails if the broker has ended. The connections show that.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

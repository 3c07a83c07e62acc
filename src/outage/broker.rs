//! The time in which the broker confirms nothing, said once when it begins and once when it is over: thousands of events may
//! wait for that.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::ports::BrokerError;

/// Whether what is published waits for the broker.
#[derive(Debug, Default)]
pub(crate) struct BrokerOutage(AtomicBool);

impl BrokerOutage {
    /// A publish was not confirmed, and is tried again.
    pub(crate) fn begins(&self, error: &BrokerError) {
        if !self.0.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "the broker confirms nothing: publishing waits, and is tried again");
        }
    }

    /// A publish was confirmed.
    pub(crate) fn ends(&self) {
        if self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed) {
            tracing::warn!("the broker confirms again");
        }
    }
}

//! A broker that confirms nothing: logged once when that begins and once when it ends, because thousands of events may wait
//! for the confirms.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::ports::BrokerError;

/// Whether publishes wait for the broker.
#[derive(Debug, Default)]
pub(crate) struct BrokerOutage(AtomicBool);

impl BrokerOutage {
    /// Notes that a publish was not confirmed, and is tried again.
    pub(crate) fn begins(&self, error: &BrokerError) {
        if !self.0.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "the broker confirms nothing: publishing waits, and is tried again");
        }
    }

    /// Notes that a publish was confirmed.
    pub(crate) fn ends(&self) {
        if self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed) {
            tracing::warn!("the broker confirms again");
        }
    }
}

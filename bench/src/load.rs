//! A round of a case: which side does the work, and how much of it.

use std::time::Duration;

use bytes::Bytes;

/// The most unconfirmed publishes at a time, the library's default.
pub(crate) const WINDOW: usize = 1_000;

/// The usual number of events that are due at one instant, or at random.
pub(crate) const INSTANT: u32 = 100_000;

/// How many events a side publishes in a second at least. The wait of a delayed event is chosen by this, so that all are
/// published before the first one is due.
const SLOWEST: u32 = 2_500;

/// How many deliveries one acknowledgement of a bare consumer usually covers.
pub(crate) const JOINED: u16 = 50;

/// A side that handles fewer events in a second is stuck.
const STUCK: u32 = 500;

/// The load that both sides get.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) events: u32,
    pub(crate) payload: Bytes,
    pub(crate) prefetch: u16,
    /// How many deliveries one acknowledgement of a bare consumer covers.
    pub(crate) joined: u16,
}

impl Load {
    /// Returns the numbers of the events.
    pub(crate) const fn numbers(&self) -> std::ops::Range<u32> {
        0..self.events
    }

    /// Returns how long events wait that are all published before the first one is due.
    pub(crate) fn wait(&self) -> Duration {
        Duration::from_secs(4 + u64::from(self.events / SLOWEST))
    }

    /// Returns how long a side may take to handle all events. It is stuck if it takes longer.
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_mins(1) + self.wait() + Duration::from_secs((self.events / STUCK).into())
    }
}

/// The library that does the work of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Side {
    /// Hatchery.
    Ours,
    /// The baseline.
    Bare,
}

impl Side {
    /// Returns the value of the argument that names the side.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Bare => "bare",
        }
    }
}

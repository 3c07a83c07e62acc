//! Notes the runs of handlers in this process.

use std::sync::{Arc, Mutex};

use hatchery::Event;
use jiff::Timestamp;

use crate::lock;

/// One run. Times are microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The event's number.
    pub number: u32,
    /// The time at which the event was published.
    pub created: i64,
    /// The time before which the event must not run.
    pub nbf: i64,
    /// The time at which it ran.
    pub at: i64,
}

impl Run {
    /// Returns whether the event ran before its time.
    pub const fn is_early(&self) -> bool {
        self.at < self.nbf
    }
}

/// All runs, in the order in which they began.
#[derive(Clone, Default)]
pub struct Runs(Arc<Mutex<Vec<Run>>>);

impl Runs {
    /// Notes that this event runs now. The event's number is its id, or that of the message that it was made of
    /// (`source:4711:1`).
    pub fn note(&self, event: &Event) {
        let created = event.created_at.as_microsecond();
        let nbf = event.nbf.map_or(created, Timestamp::as_microsecond);
        // An id that is no number is not the soak's; `u32::MAX` makes the account count it as a stranger.
        let number = event.id.split(':').nth(1).unwrap_or(&event.id);
        self.push(number.parse().unwrap_or(u32::MAX), created, nbf);
    }

    /// Notes that the event with this number runs now.
    pub fn push(&self, number: u32, created: i64, nbf: i64) {
        let at = Timestamp::now().as_microsecond();
        lock(&self.0).push(Run { number, created, nbf, at });
    }

    /// Returns the number of runs.
    pub fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Returns a copy of all runs.
    pub fn all(&self) -> Vec<Run> {
        lock(&self.0).clone()
    }
}

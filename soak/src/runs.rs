//! Notes the runs of handlers in this process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hatchery::Event;
use jiff::Timestamp;

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
    /// Notes that this event runs now. The event's number is its id.
    pub fn note(&self, event: &Event) {
        let created = event.created_at.as_microsecond();
        let nbf = event.nbf.map_or(created, Timestamp::as_microsecond);
        // An id that is no number is not the soak's; `u32::MAX` makes the account count it as a stranger.
        self.push(event.id.parse().unwrap_or(u32::MAX), created, nbf);
    }

    /// Notes that the event with this number runs now.
    pub fn push(&self, number: u32, created: i64, nbf: i64) {
        let at = Timestamp::now().as_microsecond();
        self.lock().push(Run { number, created, nbf, at });
    }

    /// Returns the number of runs.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Returns a copy of all runs.
    pub fn all(&self) -> Vec<Run> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

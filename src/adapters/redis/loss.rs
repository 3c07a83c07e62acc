//! Finds that Redis was emptied although others have written to it since: then the counters are there again when this program looks.
//!
//! Redis has the time at which its data began (`born`). A program that reads another time than before, or none, writes when the data
//! were lost. So the others learn of it too, and of the loss of one master of a Cluster.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The time between two looks.
const APART: Duration = Duration::from_secs(10);

/// The birth of the data, and when data were lost last, as Redis has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) born: String,
    pub(super) lost: String,
}

/// What this program knows of the data.
pub(super) struct Loss(Mutex<Known>);

struct Known {
    looked: Instant,
    marks: Option<Marks>,
    /// Whether a call has found a counter gone, and counted that, since the last look.
    is_counted: bool,
}

impl Loss {
    /// Begins to watch. The first look is due after the time between two, so that a short command makes none.
    pub(super) fn new() -> Self {
        Self(Mutex::new(Known { looked: Instant::now(), marks: None, is_counted: false }))
    }

    /// Notes that a call has found a counter gone, and has counted that.
    pub(super) fn counted(&self) {
        self.known().is_counted = true;
    }

    /// Begins a look if one is due, which then no other caller does. Returns the birth that is known, and whether a loss was counted
    /// since the last look.
    pub(super) fn begin(&self) -> Option<(String, bool)> {
        let mut known = self.known();
        if known.looked.elapsed() < APART {
            return None;
        }
        known.looked = Instant::now();
        let born = known.marks.as_ref().map(|marks| marks.born.clone()).unwrap_or_default();
        Some((born, std::mem::take(&mut known.is_counted)))
    }

    /// Notes what a look has seen that knew of a counted loss or not, and returns whether data were lost that nobody here has counted.
    pub(super) fn met(&self, seen: Marks, was_counted: bool) -> bool {
        let mut known = self.known();
        let is_lost = known
            .marks
            .as_ref()
            .is_some_and(|before| before.born != seen.born || (!seen.lost.is_empty() && before.lost != seen.lost));
        known.marks = Some(seen);
        // The call of the look may itself have found a counter gone. The next look tells of it.
        is_lost && !was_counted && !known.is_counted
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(born: &str, lost: &str) -> Marks {
        Marks { born: born.to_owned(), lost: lost.to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_counts_once_whoever_finds_it() {
        let loss = Loss::new();
        assert_eq!(loss.begin(), None, "a short command makes no look");
        assert!(!loss.met(marks("1", ""), false), "nothing was known");
        // Somebody else has begun the data anew.
        assert!(loss.met(marks("5", "5"), false));
        assert!(!loss.met(marks("5", "5"), false));
        // A day later nobody tells of it any more.
        assert!(!loss.met(marks("5", ""), false));
        // A part of the data was lost.
        assert!(loss.met(marks("5", "9"), false));
        // A call has found it before the look.
        assert!(!loss.met(marks("12", "12"), true));
        assert!(loss.met(marks("15", "15"), false), "it was lost again");
        // The call of the look has found it.
        loss.counted();
        assert!(!loss.met(marks("19", "19"), false));
    }

    #[tokio::test(start_paused = true)]
    async fn one_caller_looks_after_a_while() {
        let loss = Loss::new();
        tokio::time::advance(APART).await;
        assert_eq!(loss.begin(), Some((String::new(), false)));
        assert_eq!(loss.begin(), None);
        loss.met(marks("1", ""), false);
        loss.counted();
        tokio::time::advance(APART).await;
        assert_eq!(loss.begin(), Some(("1".to_owned(), true)));
        tokio::time::advance(APART).await;
        assert_eq!(loss.begin(), Some(("1".to_owned(), false)));
    }
}

//! Finds that Redis was emptied.
//!
//! [`Counters`] tracks whether each shard's counter exists. A counter that existed and is gone was lost, and all other keys with it.
//!
//! [`Loss`] finds it although others have written to Redis since: then the counters are there again when this program looks. Redis has the
//! time at which its data began (`born`). A program that reads another time than before, or none, writes when the data were lost. So the
//! others learn of it too, and of the loss of one master of a Cluster.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

/// The time between two looks.
const APART: Duration = Duration::from_secs(10);

/// For each shard, how often its counter has appeared and disappeared according to the calls: odd while it exists.
pub(super) struct Counters(Box<[AtomicU32]>);

const fn is_there(times: u32) -> bool {
    times % 2 == 1
}

impl Counters {
    pub(super) fn new(shards: u16) -> Self {
        Self((0..shards.max(1)).map(|_| AtomicU32::default()).collect())
    }

    /// Returns the count of a shard. Must be read before a call is made: a counter that is first written
    /// while the call is under way may be missing from its answer, and is not lost.
    pub(super) fn known(&self, shard: u16) -> u32 {
        self.of(shard).load(Ordering::Relaxed)
    }

    /// Notes a script's answer about the counter, and returns whether it shows that Redis was emptied. `said`: 2 if the counter existed
    /// before the call, 1 if it exists after it, else 0. `known`: the count of the shard when the call was made. One loss is reported once:
    /// all shards count as lost. A shard on another master of a Cluster counts as there again at its next answer.
    pub(super) fn met(&self, shard: u16, known: u32, said: u8) -> bool {
        let (before, after) = (said >= 2, said >= 1);
        let gone = known.wrapping_add(u32::from(is_there(known)));
        let is_lost = !before && known != gone && self.change(shard, known, gone);
        if is_lost {
            self.forget();
        }
        // An answer that the counter existed may be older than the loss.
        if after && (!before || known == gone) {
            self.change(shard, gone, gone.wrapping_add(1));
        }
        is_lost
    }

    /// Forgets which counters exist: what is missing by now is no further loss.
    pub(super) fn forget(&self) {
        for count in &self.0 {
            let times = count.load(Ordering::Relaxed);
            if is_there(times) {
                // If another call was faster, it has seen the present counter.
                let _ = count.compare_exchange(times, times.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    fn change(&self, shard: u16, from: u32, to: u32) -> bool {
        self.of(shard).compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn of(&self, shard: u16) -> &AtomicU32 {
        &self.0[usize::from(shard)]
    }
}

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

    const NONE: u8 = 0;
    const MADE: u8 = 1;
    const THERE: u8 = 2;

    /// Makes a call during which no other call is made.
    fn call(counters: &Counters, shard: u16, said: u8) -> bool {
        counters.met(shard, counters.known(shard), said)
    }

    #[test]
    fn a_loss_is_reported_once_however_many_calls_notice_it() {
        let counters = Counters::new(3);
        for shard in 0..3 {
            assert!(!call(&counters, shard, MADE), "nothing was there before");
            assert!(!call(&counters, shard, THERE));
        }
        let asked = [0, 0, 1, 2].map(|shard| (shard, counters.known(shard)));
        let said = asked.map(|(shard, known)| counters.met(shard, known, NONE));
        assert_eq!(said, [true, false, false, false]);
        assert!(!call(&counters, 0, NONE) && !call(&counters, 1, MADE) && !call(&counters, 2, MADE));
        assert!(call(&counters, 1, MADE), "it was lost again");
        assert!(call(&counters, 1, MADE), "and again");
    }

    #[test]
    fn a_loss_is_reported_once_when_answers_come_out_of_order() {
        let counters = Counters::new(1);
        assert!(!call(&counters, 0, MADE));
        let (first, second, third) = (counters.known(0), counters.known(0), counters.known(0));
        assert!(counters.met(0, second, MADE));
        assert!(!counters.met(0, first, NONE));
        assert!(!counters.met(0, third, THERE));
        assert!(!call(&counters, 0, THERE));
    }

    #[test]
    fn an_answer_from_before_a_loss_is_not_a_second_loss() {
        let counters = Counters::new(2);
        assert!(!call(&counters, 0, MADE) && !call(&counters, 1, MADE));
        let late = counters.known(1);
        assert!(call(&counters, 0, MADE));
        assert!(!counters.met(1, late, THERE));
        assert!(!call(&counters, 1, MADE));
        assert!(call(&counters, 1, MADE));
    }

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

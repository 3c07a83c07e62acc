//! Tracks whether each shard's counter exists. A counter that existed and is gone was lost, and all other keys with it.

use std::sync::atomic::{AtomicU32, Ordering};

/// For each shard, how often its counter has appeared and disappeared according to the calls: odd while it exists.
pub(super) struct Counters(Box<[AtomicU32]>);

/// The count of a shard when a call was made.
#[derive(Clone, Copy)]
pub(super) struct CountAtCall(u32);

/// A script's answer about the counter: whether it existed before the call, and whether it exists after it.
#[derive(Clone, Copy)]
pub(super) struct Met {
    before: bool,
    after: bool,
}

impl From<u8> for Met {
    fn from(said: u8) -> Self {
        Self { before: said >= 2, after: said >= 1 }
    }
}

const fn is_there(times: u32) -> bool {
    times % 2 == 1
}

impl Counters {
    pub(super) fn new(shards: u16) -> Self {
        Self((0..shards.max(1)).map(|_| AtomicU32::default()).collect())
    }

    /// Returns what is known of a shard's counter. Must be read before a call is made: a counter that is first written
    /// while the call is under way may be missing from its answer, and is not lost.
    pub(super) fn known(&self, shard: u16) -> CountAtCall {
        CountAtCall(self.of(shard).load(Ordering::Relaxed))
    }

    /// Notes a script's answer, and returns whether it shows that Redis was emptied. One loss is reported once:
    /// all shards count as lost. A shard on another master of a Cluster counts as there again at its next answer.
    pub(super) fn met(&self, shard: u16, CountAtCall(known): CountAtCall, Met { before, after }: Met) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: u8 = 0;
    const MADE: u8 = 1;
    const THERE: u8 = 2;

    /// Makes a call during which no other call is made.
    fn call(counters: &Counters, shard: u16, said: u8) -> bool {
        counters.met(shard, counters.known(shard), said.into())
    }

    #[test]
    fn a_loss_is_reported_once_however_many_calls_notice_it() {
        let counters = Counters::new(3);
        for shard in 0..3 {
            assert!(!call(&counters, shard, MADE), "nothing was there before");
            assert!(!call(&counters, shard, THERE));
        }
        let asked = [0, 0, 1, 2].map(|shard| (shard, counters.known(shard)));
        let said = asked.map(|(shard, known)| counters.met(shard, known, NONE.into()));
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
        assert!(counters.met(0, second, MADE.into()));
        assert!(!counters.met(0, first, NONE.into()));
        assert!(!counters.met(0, third, THERE.into()));
        assert!(!call(&counters, 0, THERE));
    }

    #[test]
    fn an_answer_from_before_a_loss_is_not_a_second_loss() {
        let counters = Counters::new(2);
        assert!(!call(&counters, 0, MADE) && !call(&counters, 1, MADE));
        let late = counters.known(1);
        assert!(call(&counters, 0, MADE));
        assert!(!counters.met(1, late, THERE.into()));
        assert!(!call(&counters, 1, MADE));
        assert!(call(&counters, 1, MADE));
    }
}

//! What this program knows of the shards' counters. One that was there and is gone was lost, and all else with it.

use std::sync::atomic::{AtomicU32, Ordering};

/// For each shard how often its counter has come and gone, as far as its calls told: odd while there is one.
pub(super) struct Counters(Box<[AtomicU32]>);

/// What was known when a call was made.
#[derive(Clone, Copy)]
pub(super) struct Known(u32);

/// What a script says of the counter: whether there was one, and whether there is one now.
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

    /// To be asked before a call is made: what is written meanwhile was not there yet, and is not lost either.
    pub(super) fn known(&self, shard: u16) -> Known {
        Known(self.of(shard).load(Ordering::Relaxed))
    }

    /// Takes note of what a call has met, and says whether the register was emptied. That is said once for all who ask, and
    /// for all shards: together they have lost what they were told until now.
    pub(super) fn met(&self, shard: u16, Known(known): Known, Met { before, after }: Met) -> bool {
        let gone = known.wrapping_add(u32::from(is_there(known)));
        let is_lost = !before && known != gone && self.change(shard, known, gone);
        if is_lost {
            for other in &self.0 {
                let times = other.load(Ordering::Relaxed);
                if is_there(times) {
                    // Who was faster has met what is there now.
                    let _ = other.compare_exchange(times, times.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
                }
            }
        }
        // An answer that says that it was there may be older than the loss.
        if after && (!before || known == gone) {
            self.change(shard, gone, gone.wrapping_add(1));
        }
        is_lost
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

    /// A call that nothing comes between.
    fn call(counters: &Counters, shard: u16, said: u8) -> bool {
        counters.met(shard, counters.known(shard), said.into())
    }

    #[test]
    fn a_loss_is_said_once_however_many_notice() {
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
    fn answers_in_another_order_than_the_calls_say_it_once_too() {
        let counters = Counters::new(1);
        assert!(!call(&counters, 0, MADE));
        let (first, second, third) = (counters.known(0), counters.known(0), counters.known(0));
        assert!(counters.met(0, second, MADE.into()));
        assert!(!counters.met(0, first, NONE.into()));
        assert!(!counters.met(0, third, THERE.into()));
        assert!(!call(&counters, 0, THERE));
    }

    #[test]
    fn an_answer_from_before_a_loss_does_not_make_another_one() {
        let counters = Counters::new(2);
        assert!(!call(&counters, 0, MADE) && !call(&counters, 1, MADE));
        let late = counters.known(1);
        assert!(call(&counters, 0, MADE));
        assert!(!counters.met(1, late, THERE.into()));
        assert!(!call(&counters, 1, MADE));
        assert!(call(&counters, 1, MADE));
    }
}

//! The pace of the loop's calls to the register.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff};
use tokio::time::Instant;

use crate::outage::backoff;

/// The number of events from which on a call does not wait for the pace.
const ENOUGH: usize = 32;

/// How many small calls may follow one another at once.
const BURST: u32 = 4;

/// Says when the next call may begin. A call costs Redis and the client as much as several events in it. So in the long run
/// small calls begin `each` apart, and each call is about more events. The first few wait for nothing. `docs/decisions.md` says
/// what else was measured.
pub(super) struct Pace {
    /// The time from one small call to the next one in the long run.
    each: Duration,
    /// When the next small call may begin. `None` is at once.
    next: Option<Instant>,
    /// When the next call of any size may begin, after one that had no answer.
    not_before: Option<Instant>,
    pauses: ExponentialBackoff,
}

impl Pace {
    /// `each` is the pace of the [register](crate::ports::Register::pace).
    pub(super) fn new(each: Duration) -> Self {
        Self { each, next: None, not_before: None, pauses: backoff().build() }
    }

    /// Returns when a call about this many events may begin, of at most `most` that this worker can hold.
    pub(super) fn may_begin_at(&self, events: usize, most: usize) -> Instant {
        let is_small = events < ENOUGH.min(most);
        let next = self.next.filter(|_| is_small);
        next.max(self.not_before).unwrap_or_else(Instant::now)
    }

    /// Notes that a call, small or large, begins now. Large calls, which wait for nothing, delay the next one no longer than
    /// a small one does.
    pub(super) fn begins(&mut self, now: Instant) {
        self.not_before = None;
        let rested = now.checked_sub(self.each * (BURST - 1));
        let next = self.next.max(rested).unwrap_or(now) + self.each;
        self.next = Some(next.min(now + self.each));
    }

    /// Notes the end of the call. After a call without an answer, the next one waits.
    pub(super) fn ended(&mut self, is_answered: bool) {
        if is_answered {
            self.pauses = backoff().build();
        } else {
            self.not_before = Some(Instant::now() + self.pauses.next().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const EACH: Duration = Duration::from_millis(2);

    /// Makes calls that are wanted so far apart. Returns the longest wait of one, and the time from the first to the last one.
    fn calls(calls: u32, apart: Duration) -> (Duration, Duration) {
        let (mut pace, start) = (Pace::new(EACH), Instant::now() + Duration::from_hours(1));
        let (mut wanted, mut begins, mut longest) = (start, start, Duration::ZERO);
        for _ in 0..calls {
            begins = pace.next.map_or(wanted, |next| next.max(wanted));
            longest = longest.max(begins - wanted);
            pace.begins(begins);
            wanted = begins + apart;
        }
        (longest, begins - start)
    }

    #[rstest]
    #[case::at_the_pace(1_000, EACH)]
    #[case::a_burst(BURST, Duration::ZERO)]
    fn a_call_waits_for_nothing(#[case] count: u32, #[case] apart: Duration) {
        assert_eq!(calls(count, apart).0, Duration::ZERO);
    }

    #[test]
    fn calls_without_end_keep_the_pace() {
        let (longest, took) = calls(BURST + 1_000, Duration::ZERO);
        assert_eq!((longest, took), (EACH, EACH * 1_000));
    }

    #[test]
    fn large_calls_delay_the_next_small_one_for_the_pace_alone() {
        let (mut pace, now) = (Pace::new(EACH), Instant::now());
        for _ in 0..10 * BURST {
            pace.begins(now);
        }
        assert_eq!(pace.next, Some(now + EACH));
    }

    #[test]
    fn a_rest_gives_no_more_than_one_burst() {
        let (mut pace, now) = (Pace::new(EACH), Instant::now());
        pace.begins(now);
        let later = now + Duration::from_hours(1);
        for _ in 0..BURST {
            assert!(pace.next <= Some(later));
            pace.begins(later);
        }
        assert_eq!(pace.next, Some(later + EACH));
    }

    #[test]
    fn a_register_without_a_pace_waits_for_nothing() {
        let (mut pace, now) = (Pace::new(Duration::ZERO), Instant::now());
        for _ in 0..100 {
            pace.begins(now);
        }
        assert!(pace.next <= Some(now));
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_call_waits_for_the_pace_and_a_large_one_does_not() {
        let (mut pace, now) = (Pace::new(EACH), Instant::now());
        assert_eq!(pace.may_begin_at(1, 100), now, "the first call");
        for _ in 0..ENOUGH {
            pace.begins(now);
        }
        assert_eq!(pace.may_begin_at(ENOUGH - 1, 100), now + EACH);
        assert!(pace.may_begin_at(ENOUGH, 100) <= now);
        assert!(pace.may_begin_at(1, 1) <= now, "no more events can come meanwhile");
        pace.ended(false);
        assert!(pace.may_begin_at(ENOUGH, 100) > now, "a call after one without an answer");
    }
}

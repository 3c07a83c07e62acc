//! When the next small call to the register may begin.

use std::time::Duration;

use tokio::time::Instant;

/// How many small calls may follow one another at once.
const BURST: u32 = 32;

/// Paces the small calls. A call costs Redis and the client as much as several events in it. So in the long run each begins twice
/// the time of the last one after that: on a busy machine calls take longer, and then each is about more events. The first few
/// wait for nothing.
pub(super) struct Pace {
    /// The longest time from one call to the next one.
    longest: Duration,
    /// The time from one call to the next one in the long run.
    each: Duration,
    /// When the last call began.
    last: Option<Instant>,
    /// When the next call may begin.
    next: Option<Instant>,
}

impl Pace {
    pub(super) const fn new(longest: Duration) -> Self {
        Self { longest, each: longest, last: None, next: None }
    }

    /// Returns when a small call may begin; `None` is at once. One that starts no event leaves half of the burst to those that do,
    /// and goes with the next of them.
    pub(super) fn next(&self, starts_events: bool) -> Option<Instant> {
        if starts_events {
            return self.next;
        }
        let spared = self.next.map(|next| next + self.each * (BURST / 2));
        spared.min(self.last.map(|last| last + self.longest))
    }

    /// Notes that a call, small or large, begins now.
    pub(super) fn begins(&mut self, now: Instant) {
        let rested = now.checked_sub(self.each * (BURST - 1));
        let next = self.next.max(rested).unwrap_or(now) + self.each;
        (self.last, self.next) = (Some(now), Some(next.min(now + self.each)));
    }

    /// Notes that the call has ended.
    pub(super) fn ended(&mut self, now: Instant) {
        let took = self.last.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        self.each = (took * 2).min(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const LONGEST: Duration = Duration::from_millis(2);

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// Makes calls that take so long and are wanted so far apart. Returns the longest wait of one, and the time from the first call
    /// until the last one begins.
    fn calls(calls: u32, apart: u64, took: u64, starts_events: bool) -> (Duration, Duration) {
        let (mut pace, start) = (Pace::new(LONGEST), Instant::now() + Duration::from_hours(1));
        let (mut wanted, mut begins, mut longest) = (start, start, Duration::ZERO);
        for _ in 0..calls {
            begins = pace.next(starts_events).map_or(wanted, |next| next.max(wanted));
            longest = longest.max(begins - wanted);
            pace.begins(begins);
            pace.ended(begins + micros(took));
            wanted = begins + micros(apart.max(took));
        }
        (longest, begins - start)
    }

    #[rstest]
    #[case::every_two_milliseconds(1_000, 2_000, 900, true)]
    #[case::every_half_millisecond(1_000, 500, 200, true)]
    #[case::every_half_millisecond_and_nothing_starts(1_000, 500, 200, false)]
    #[case::a_burst(32, 0, 200, true)]
    #[case::a_burst_in_which_nothing_starts(16, 0, 200, false)]
    #[case::longer_than_the_pace(1_000, 0, 2_000, true)]
    fn a_call_waits_for_nothing(
        #[case] count: u32,
        #[case] apart: u64,
        #[case] took: u64,
        #[case] starts_events: bool,
    ) {
        assert_eq!(calls(count, apart, took, starts_events).0, Duration::ZERO);
    }

    #[rstest]
    #[case::short(200, 400)]
    #[case::long(1_500, 2_000)]
    fn calls_without_end_are_twice_their_time_apart(#[case] took: u64, #[case] apart: u64) {
        let (longest, burst) = calls(10 * BURST, 0, took, true);
        assert!(longest <= micros(apart));
        assert_eq!(calls(10 * BURST + 1_000, 0, took, true).1, burst + micros(apart) * 1_000);
    }

    #[test]
    fn a_call_that_starts_nothing_leaves_half_of_the_burst_and_waits_no_longer_than_the_pace() {
        let (mut pace, now) = (Pace::new(LONGEST), Instant::now() + Duration::from_hours(1));
        for _ in 1..BURST {
            pace.begins(now);
        }
        assert_eq!(pace.next(true), Some(now));
        assert_eq!(pace.next(false), Some(now + LONGEST));
        pace.begins(now);
        assert_eq!(pace.next(true), Some(now + LONGEST), "large calls, which wait for nothing, owe no more than that");
        pace.begins(now);
        assert_eq!(pace.next(true), Some(now + LONGEST));
    }

    #[test]
    fn a_register_without_a_pace_waits_for_nothing() {
        let (mut pace, now) = (Pace::new(Duration::ZERO), Instant::now());
        for _ in 0..100 {
            pace.begins(now);
            pace.ended(now + LONGEST);
        }
        assert!(pace.next(true) <= Some(now) && pace.next(false) <= Some(now));
    }
}

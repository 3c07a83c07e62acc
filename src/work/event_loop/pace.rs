//! When the next small call to the register may begin.

use std::time::Duration;

use tokio::time::Instant;

/// How many small calls may follow one another at once.
const BURST: u32 = 4;

/// Paces the small calls. A call costs Redis and the client as much as several events in it. So in the long run they begin this
/// time apart, and each is about more events. The first few wait for nothing. `docs/decisions.md` says what else was measured.
pub(super) struct Pace {
    /// The time from one call to the next one in the long run.
    each: Duration,
    /// When the next call may begin. `None` is at once.
    pub(super) next: Option<Instant>,
}

impl Pace {
    pub(super) const fn new(each: Duration) -> Self {
        Self { each, next: None }
    }

    /// Notes that a call, small or large, begins now. Large calls, which wait for nothing, delay the next one no longer than
    /// a small one does.
    pub(super) fn begins(&mut self, now: Instant) {
        let rested = now.checked_sub(self.each * (BURST - 1));
        let next = self.next.max(rested).unwrap_or(now) + self.each;
        self.next = Some(next.min(now + self.each));
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
}

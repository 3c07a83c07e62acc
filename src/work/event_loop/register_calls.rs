//! The loop's calls to the register: one call settles what has run and claims what may start.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBackoff};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::{
    outage::backoff,
    ports::{self, RegisterError},
    work::{
        lane::Lane,
        stage::{Ended, Ready},
    },
};

/// The number of events from which on a call does not wait for the pace.
const ENOUGH: usize = 32;

/// How many small calls may follow one another at once.
const BURST: u32 = 4;

/// The call that is under way, or when the next one may be made.
pub(super) struct RegisterCalls {
    pub(super) under_way: Option<BoxFuture<'static, CallEnd>>,
    /// How many events the call under way claims.
    pub(super) claiming: usize,
    pace: Pace,
    /// When the next call may be made after one that had no answer.
    not_before: Option<Instant>,
    pauses: ExponentialBackoff,
}

/// The end of a call: what it was about, and its answers.
pub(super) struct CallEnd {
    pub(super) asked: Instant,
    pub(super) settles: Vec<Ended>,
    pub(super) claims: Vec<Ready>,
    pub(super) answers: Result<ports::SettledAndClaimed, RegisterError>,
}

impl RegisterCalls {
    /// `pace` is that of the [register](ports::Register::pace).
    pub(super) fn new(pace: Duration) -> Self {
        Self { under_way: None, claiming: 0, pace: Pace::new(pace), not_before: None, pauses: backoff().build() }
    }

    /// Returns when a call about this many events may begin, of at most `most` that this worker can hold. `None` if a call is
    /// under way, whose end wakes the loop.
    pub(super) fn may_begin_at(&self, events: usize, most: usize) -> Option<Instant> {
        if self.under_way.is_some() || events == 0 {
            return None;
        }
        let is_small = events < ENOUGH.min(most);
        let pace = self.pace.next.filter(|_| is_small);
        Some(pace.max(self.not_before).unwrap_or_else(Instant::now))
    }

    /// Begins a call.
    pub(super) fn begin(&mut self, lane: &Arc<Lane>, settles: Vec<Ended>, mut claims: Vec<Ready>) {
        self.not_before = None;
        self.pace.begins(Instant::now());
        self.claiming = claims.len();
        let lane = Arc::clone(lane);
        self.under_way = Some(Box::pin(async move {
            let settle: Vec<_> = settles.iter().filter_map(|ended| ended.settle(lane.terms)).collect();
            let claim: Vec<_> = claims.iter_mut().map(|ready| ready.claim(false, lane.terms)).collect();
            let asked = Instant::now();
            let answers = lane.common.register.settle_and_claim(&settle, &claim).await;
            CallEnd { asked, settles, claims, answers }
        }));
    }

    /// Notes the end of the call. After a call without an answer, the next one waits.
    pub(super) fn ended(&mut self, is_answered: bool) {
        (self.under_way, self.claiming) = (None, 0);
        if is_answered {
            self.pauses = backoff().build();
        } else {
            self.not_before = Some(Instant::now() + self.pauses.next().unwrap_or_default());
        }
    }
}

/// Paces the small calls. A call costs Redis and the client as much as several events in it. So in the long run they begin this
/// time apart, and each is about more events. The first few wait for nothing. `docs/decisions.md` says what else was measured.
struct Pace {
    /// The time from one call to the next one in the long run.
    each: Duration,
    /// When the next call may begin. `None` is at once.
    next: Option<Instant>,
}

impl Pace {
    const fn new(each: Duration) -> Self {
        Self { each, next: None }
    }

    /// Notes that a call, small or large, begins now. Large calls, which wait for nothing, delay the next one no longer than
    /// a small one does.
    fn begins(&mut self, now: Instant) {
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

    #[tokio::test(start_paused = true)]
    async fn a_small_call_waits_for_the_pace_and_a_large_one_does_not() {
        let (pace, now) = (Duration::from_millis(2), Instant::now());
        let mut calls = RegisterCalls::new(pace);
        assert_eq!(calls.may_begin_at(1, 100), Some(now), "the first call");
        for _ in 0..ENOUGH {
            calls.pace.begins(now);
        }
        assert_eq!(calls.may_begin_at(0, 100), None, "a call about nothing");
        assert_eq!(calls.may_begin_at(ENOUGH - 1, 100), Some(now + pace));
        assert!(calls.may_begin_at(ENOUGH, 100) <= Some(now));
        assert!(calls.may_begin_at(1, 1) <= Some(now), "no more events can come meanwhile");
        calls.ended(false);
        assert!(calls.may_begin_at(ENOUGH, 100) > Some(now), "a call after one without an answer");
    }
}

//! The loop's calls to the register: one call settles what has run and claims what may start.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBackoff};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::pace::Pace;
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
    pub(super) fn begin(&mut self, lane: &Arc<Lane>, settles: Vec<Ended>, claims: Vec<Ready>) {
        self.not_before = None;
        self.pace.begins(Instant::now());
        self.claiming = claims.len();
        self.under_way = Some(Box::pin(call(Arc::clone(lane), settles, claims)));
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

async fn call(lane: Arc<Lane>, settles: Vec<Ended>, mut claims: Vec<Ready>) -> CallEnd {
    let settle: Vec<_> = settles.iter().filter_map(|ended| ended.settle(lane.terms)).collect();
    let claim: Vec<_> = claims.iter_mut().map(|ready| ready.claim(false, lane.terms)).collect();
    let asked = Instant::now();
    let answers = lane.common.register.settle_and_claim(&settle, &claim).await;
    CallEnd { asked, settles, claims, answers }
}

#[cfg(test)]
mod tests {
    use super::*;

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

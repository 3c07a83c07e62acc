//! The loop's calls to the register: one call settles what has run and claims what may start.

use std::sync::Arc;

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

/// The call that is under way, or when the next one may be made.
pub(super) struct RegisterCalls {
    pub(super) under_way: Option<BoxFuture<'static, Answered>>,
    /// How many events the call under way claims.
    pub(super) claiming: usize,
    /// When the next call may be made after one that had no answer.
    not_before: Option<Instant>,
    pauses: ExponentialBackoff,
}

/// What a call was about, and its answers.
pub(super) struct Answered {
    pub(super) asked: Instant,
    pub(super) settles: Vec<Ended>,
    pub(super) claims: Vec<Ready>,
    pub(super) answers: Result<ports::Turn, RegisterError>,
}

impl RegisterCalls {
    pub(super) fn new() -> Self {
        Self { under_way: None, claiming: 0, not_before: None, pauses: backoff().build() }
    }

    /// Returns when the pause after a call without an answer is over.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.under_way.is_none())
    }

    pub(super) fn may_begin(&self) -> bool {
        self.under_way.is_none() && self.not_before.is_none_or(|at| at <= Instant::now())
    }

    /// Begins a call, unless it would be about nothing.
    pub(super) fn begin(&mut self, lane: &Arc<Lane>, settles: Vec<Ended>, claims: Vec<Ready>) {
        self.not_before = None;
        if settles.is_empty() && claims.is_empty() {
            return;
        }
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

async fn call(lane: Arc<Lane>, settles: Vec<Ended>, claims: Vec<Ready>) -> Answered {
    let settle: Vec<_> = settles.iter().filter_map(|ended| ended.settle(lane.terms)).collect();
    let claim: Vec<_> = claims.iter().map(|ready| ready.claim(false, lane.terms)).collect();
    let asked = Instant::now();
    let answers = lane.common.register.turn(&settle, &claim).await;
    Answered { asked, settles, claims, answers }
}

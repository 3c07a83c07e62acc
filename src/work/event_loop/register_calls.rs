//! The loop's calls to the register: one call settles what has run and claims what may start. And what follows from the answers.

use std::sync::Arc;

use backon::{BackoffBuilder as _, ExponentialBackoff};
use fail::fail_point;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::Loop;
use crate::{
    domain::register,
    outage::{Health, backoff},
    ports::{self, RegisterError, Written},
    work::{
        busy_wait::BusyWait,
        lane::Lane,
        not_run::Wait,
        stage::{Detour, Disposition, Ended, Ready, Settled},
    },
};

/// The most events of one call, of each kind. A script over them takes a few milliseconds, in which Redis serves nobody else.
const LARGEST: usize = 256;

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
    asked: Instant,
    settles: Vec<Ended>,
    claims: Vec<Ready>,
    answers: Result<ports::Turn, RegisterError>,
}

impl RegisterCalls {
    pub(super) fn new() -> Self {
        Self { under_way: None, claiming: 0, not_before: None, pauses: backoff().build() }
    }

    /// Returns when the pause after a call without an answer is over.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.under_way.is_none())
    }

    fn is_ready(&self) -> bool {
        self.under_way.is_none() && self.not_before.is_none_or(|at| at <= Instant::now())
    }
}

async fn call(lane: Arc<Lane>, settles: Vec<Ended>, claims: Vec<Ready>) -> Answered {
    let settle: Vec<_> = settles.iter().filter_map(|ended| ended.settle(lane.terms)).collect();
    let claim: Vec<_> = claims.iter().map(|ready| ready.claim(false, lane.terms)).collect();
    let asked = Instant::now();
    let answers = lane.common.register.turn(&settle, &claim).await;
    Answered { asked, settles, claims, answers }
}

impl Loop {
    /// Begins a call, unless one is under way.
    pub(super) fn call_register(&mut self, health: Health) {
        if !self.calls.is_ready() {
            return;
        }
        self.calls.not_before = None;
        let may_claim = self.may_start() && (health != Health::Down || self.consumer.is_probe() == Some(true));
        let most = if may_claim { self.free().min(LARGEST).min(self.waiting.len()) } else { 0 };
        let claims: Vec<Ready> = self.waiting.drain(..most).collect();
        let settles: Vec<Ended> = self.finished.drain(..self.finished.len().min(LARGEST)).collect();
        if claims.is_empty() && settles.is_empty() {
            return;
        }
        self.calls.claiming = claims.len();
        self.calls.under_way = Some(Box::pin(call(Arc::clone(&self.lane), settles, claims)));
    }

    /// Takes the answers to the call.
    pub(super) fn answered(&mut self, answered: Answered) {
        let Answered { asked, settles, claims, answers } = answered;
        (self.calls.under_way, self.calls.claiming) = (None, 0);
        let common = Arc::clone(&self.lane.common);
        match answers {
            Ok(answers) => {
                common.register_answered(asked);
                self.calls.pauses = backoff().build();
                for (ended, answer) in settles.into_iter().zip(answers.settled) {
                    self.settled(ended, answer.is_ok());
                }
                for (ready, answer) in claims.into_iter().zip(answers.claimed) {
                    self.claimed(ready, answer, asked);
                }
            }
            // Redis may have done all of it, and only the answer was lost: both are asked again.
            Err(error) => {
                common.register_failed(asked, &error);
                self.calls.not_before = Some(Instant::now() + self.calls.pauses.next().unwrap_or_default());
                for ended in settles.into_iter().rev() {
                    self.finished.push_front(ended);
                }
                for mut ready in claims.into_iter().rev() {
                    ready.work.is_claim_open = true;
                    self.wait_again(ready);
                }
            }
        }
    }

    fn settled(&mut self, ended: Ended, is_settled: bool) {
        if is_settled {
            return self.acknowledge(ended.settled());
        }
        // The key of this event is damaged. Other events do not wait for it.
        let lane = Arc::clone(&self.lane);
        self.detours.spawn(async move {
            lane.settle_one(ended).await.acknowledge().await;
            Detour::Over
        });
    }

    pub(super) fn acknowledge(&mut self, settled: Settled) {
        let written = settled.acknowledge();
        self.written(written);
    }

    /// Keeps an answer until it is written, or until the loop ends.
    pub(super) fn written(&mut self, written: Written) {
        self.written.push_back(written);
        while self.written.front_mut().is_some_and(Written::is_done) {
            self.written.pop_front();
        }
    }

    /// Takes the register's answer to a claim.
    fn claimed(&mut self, mut ready: Ready, answer: Result<register::Claimed, RegisterError>, asked: Instant) {
        let lane = Arc::clone(&self.lane);
        ready.work.is_claim_open = false;
        if !matches!(answer, Ok(register::Claimed::Busy)) {
            ready.work.busy = None;
        }
        match answer {
            // An event waits to run alone, and this loop has dropped its permit while the call was under way.
            Ok(register::Claimed::Run { .. }) if self.permit.is_none() => {
                self.detours.spawn(async move {
                    lane.unclaim(&mut ready).await;
                    Detour::Ready(ready)
                });
            }
            Ok(register::Claimed::Run { fence, crashes, stamp }) => {
                fail_point!("work.claimed");
                ready.work.copying = None;
                let (claimed, too_often) = lane.grant(ready, stamp, (fence, crashes), asked);
                match too_often {
                    Some(decision) => self.follow_up(claimed, decision),
                    None => self.start(claimed),
                }
            }
            Ok(register::Claimed::Alone) => drop(self.detours.spawn(lane.run_alone(ready))),
            Ok(register::Claimed::Busy) => self.wait_for_reference(ready),
            Ok(register::Claimed::Later(time)) => {
                self.detours.spawn(lane.wait_as_copy(ready, Wait::Until(time)));
            }
            Ok(answer @ (register::Claimed::Stale | register::Claimed::Replaced)) => {
                self.detours.spawn(async move { lane.drop_delivery(ready, answer).await });
            }
            Err(error) => drop(self.detours.spawn(lane.unreadable(ready, error))),
        }
    }

    /// Lets an event whose reference is busy wait: in memory for a moment, if there is a place for it, else as a copy. An event
    /// in memory holds a place of the prefetch: events of other references must not wait behind it for long.
    fn wait_for_reference(&mut self, mut ready: Ready) {
        if ready.work.busy.is_none() && self.busy.taken() < usize::from(self.lane.prefetch / 2) {
            ready.work.busy = Some(Box::new(BusyWait::new(&self.busy)));
        }
        let Some(next) = ready.work.busy.as_mut().and_then(|wait| wait.next()) else {
            ready.work.busy = None;
            self.detours.spawn(Arc::clone(&self.lane).wait_as_copy(ready, Wait::Busy));
            return;
        };
        let stop = self.lane.common.stop.clone();
        self.detours.spawn(async move {
            stop.run_until_cancelled(tokio::time::sleep_until(next)).await;
            Detour::Ready(ready)
        });
    }

    /// Gives an event back that has not started.
    pub(super) fn give_back(&mut self, mut ready: Ready) {
        if !ready.work.is_claim_open {
            self.lane.common.counters.given_back();
            self.written(Disposition::GiveBack.answer(ready.into_receipt()));
            return;
        }
        // The claim may have been granted, and only the answer was lost.
        let lane = Arc::clone(&self.lane);
        ready.work.busy = None;
        self.detours.spawn(async move {
            lane.unclaim(&mut ready).await;
            lane.answer(ready, Disposition::GiveBack).await
        });
    }
}

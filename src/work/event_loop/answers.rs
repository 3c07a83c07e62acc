//! What follows from the register's answers to a call of the loop.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Loop, register_calls::CallEnd};
use crate::{
    domain::register::ClaimAnswer,
    ports::{RegisterError, Written},
    work::{
        busy_wait::BusyWait,
        not_run::Wait,
        stage::{Detour, Ended, NotSettled, Ready},
    },
};

impl Loop {
    /// Takes the answers to the call.
    pub(super) fn answered(&mut self, answered: CallEnd) {
        let CallEnd { asked, settles, claims, answers } = answered;
        self.calls.ended(answers.is_ok());
        let common = Arc::clone(&self.lane.common);
        match answers {
            Ok(answers) => {
                common.register_answered(asked);
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
                for ended in settles.into_iter().rev() {
                    self.finished.push_front(ended);
                }
                for ready in claims.into_iter().rev() {
                    self.wait_again(ready);
                }
            }
        }
    }

    fn settled(&mut self, ended: Ended, is_settled: bool) {
        if is_settled {
            return self.acknowledge(ended);
        }
        // The key of this event is damaged. Other events do not wait for it.
        let lane = Arc::clone(&self.lane);
        self.detours.spawn(async move {
            lane.settle_one(ended).await.acknowledge().await;
            Detour::Over
        });
    }

    /// Acknowledges the delivery of an event that is settled.
    pub(super) fn acknowledge(&mut self, ended: Ended) {
        let written = ended.settled(&self.lane).acknowledge();
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
    fn claimed(&mut self, mut ready: Ready, answer: Result<ClaimAnswer, RegisterError>, asked: Instant) {
        let lane = Arc::clone(&self.lane);
        lane.meters.claimed(answer.as_ref().ok());
        if !matches!(answer, Ok(ClaimAnswer::Busy)) {
            ready.work.busy = None;
        }
        // An event waits to run alone, and this loop has dropped its permit while the call was under way.
        if self.permit.is_none() && matches!(answer, Ok(ClaimAnswer::Run { .. })) {
            self.detours.spawn(async move {
                lane.unclaim(&mut ready).await;
                Detour::Ready(ready)
            });
            return;
        }
        match lane.grant(ready, answer, asked) {
            Ok((claimed, Some(decision))) => self.carry_out(claimed, decision),
            Ok((claimed, None)) => self.start(claimed),
            Err((ready, NotSettled::Busy)) => self.wait_for_reference(ready),
            Err((ready, NotSettled::Alone)) => drop(self.detours.spawn(lane.run_alone(ready))),
            Err((ready, NotSettled::Damaged(error))) => drop(self.detours.spawn(lane.unreadable(ready, error))),
            Err((ready, why)) => drop(self.detours.spawn(lane.put_off(ready, why))),
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
}

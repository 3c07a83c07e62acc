//! The loop's steps with an event: its claim is answered, its handler starts and ends, it is settled and acknowledged.

use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::{
    task::{JoinError, unconstrained},
    time::Instant,
};

use super::{CallEnd, Loop};
use crate::{
    domain::{register::ClaimAnswer, settlement::Decision},
    ports::{RegisterError, Written},
    work::{
        busy_wait::BusyWait,
        isolation::for_a_while,
        not_run::Wait,
        stage::{Claimed, Detour, Ended, NotSettled, Ran, Ready},
    },
};

impl Loop {
    /// Takes the answers to the call.
    pub(super) fn answered(&mut self, answered: CallEnd) {
        let CallEnd { asked, settles, claims, answers } = answered;
        (self.under_way, self.claiming) = (None, 0);
        self.pace.ended(answers.is_ok());
        let common = Arc::clone(&self.lane.common);
        let answers = match answers {
            Ok(answers) => answers,
            // Redis may have done all of it, and only the answer was lost: both are asked again.
            Err(error) => {
                common.register_failed(asked, &error);
                for ended in settles.into_iter().rev() {
                    self.finished.push_front(ended);
                }
                for ready in claims.into_iter().rev() {
                    self.wait_again(ready);
                }
                return;
            }
        };
        common.health.answered(asked);
        for (ended, answer) in settles.into_iter().zip(answers.settled) {
            if answer.is_ok() {
                self.acknowledge(ended);
                continue;
            }
            // The key of this event is damaged. Other events do not wait for it.
            let lane = Arc::clone(&self.lane);
            self.detours.spawn(async move {
                lane.settle_one(ended).await.acknowledge().await;
                Detour::Over
            });
        }
        // What has changed while the call was under way: the type is paused, or an event waits to run alone.
        let may_start = self.permit.is_some() && !self.lane.switch.is_off();
        for (ready, answer) in claims.into_iter().zip(answers.claimed) {
            self.claimed(ready, answer, asked, may_start);
        }
    }

    /// Takes the register's answer to a claim.
    fn claimed(
        &mut self,
        mut ready: Ready,
        answer: Result<ClaimAnswer, RegisterError>,
        asked: Instant,
        may_start: bool,
    ) {
        let lane = Arc::clone(&self.lane);
        lane.meters.claimed(answer.as_ref().ok());
        if !matches!(answer, Ok(ClaimAnswer::Busy)) {
            ready.work.busy = None;
        }
        if !may_start && matches!(answer, Ok(ClaimAnswer::Run { .. })) {
            return self.unclaim(ready);
        }
        match ready.answered(&lane, answer, asked) {
            Ok((claimed, Some(decision))) => self.carry_out(claimed, decision),
            Ok((claimed, None)) => self.start(claimed),
            Err((ready, NotSettled::Busy)) => self.wait_for_reference(ready),
            Err((ready, NotSettled::Alone)) => drop(self.detours.spawn(lane.run_alone(ready))),
            Err((ready, NotSettled::Damaged(error))) => drop(self.detours.spawn(lane.unreadable(ready, error))),
            Err((ready, why)) => drop(self.detours.spawn(lane.put_off(ready, why))),
        }
    }

    /// Releases the claim of an event that may not start now. The event comes back to the loop.
    pub(super) fn unclaim(&mut self, mut ready: Ready) {
        let lane = Arc::clone(&self.lane);
        self.detours.spawn(async move {
            lane.unclaim(&mut ready).await;
            Detour::Ready(ready)
        });
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

    /// Starts a handler.
    pub(super) fn start(&mut self, mut claimed: Claimed) {
        let lane = Arc::clone(&self.lane);
        if !lane.lets_run(&mut claimed) {
            return drop(self.detours.spawn(lane.give_up(claimed, NotSettled::Held)));
        }
        let started = lane.health.starts();
        let run = async move {
            let ran = lane.run(&mut claimed, started).await;
            (claimed, ran)
        };
        if !self.lane.inline {
            self.running.spawn(run);
            return;
        }
        // The task's budget must not end here: what is not ready by then would be polled again for nothing.
        let mut run = Box::pin(run);
        match unconstrained(&mut run).now_or_never() {
            Some(ran) => self.ran(Ok(ran)),
            None => drop(self.running.spawn(run)),
        }
    }

    /// Takes the end of a run.
    pub(super) fn ran(&mut self, ran: Result<Ran, JoinError>) {
        let (mut claimed, ran) = match ran {
            Ok(ran) => ran,
            // The delivery is not answered: the broker delivers it again.
            Err(error) => {
                return tracing::error!(%error, event_type = %self.lane.event_type, "a run has ended without a result");
            }
        };
        let lane = Arc::clone(&self.lane);
        match ran {
            Ok(decision) => self.carry_out(claimed, decision),
            // The event keeps its place.
            Err(NotSettled::Again(after)) => {
                self.running.spawn(async move {
                    let ran = lane.run_after(after, &mut claimed).await;
                    (claimed, ran)
                });
            }
            Err(why) => drop(self.detours.spawn(lane.give_up(claimed, why))),
        }
    }

    /// Carries out a decision. An event that needs no follow-up, and belongs to no schedule, is settled with the next call.
    pub(super) fn carry_out(&mut self, claimed: Claimed, decision: Decision) {
        fail_point!("work.handled");
        if matches!(decision, Decision::Finish(_)) && self.lane.chain_link(claimed.event()).is_none() {
            return self.finished.push_back(claimed.finished(&decision, &self.lane));
        }
        let (lane, permit) = (Arc::clone(&self.lane), self.permit.clone());
        self.detours.spawn(async move {
            match for_a_while(permit, lane.end(claimed, decision)).await.0 {
                Ok(ended) => Detour::Ended(ended),
                Err((claimed, disposition)) => lane.give_up(claimed, NotSettled::Answer(disposition)).await,
            }
        });
    }

    /// Takes the end of a detour.
    pub(super) fn came_back(&mut self, detour: Result<Detour, JoinError>) {
        match detour {
            Ok(Detour::Over) => {}
            Ok(Detour::Ready(mut ready)) => {
                if ready.stays_here() {
                    self.wait_again(ready);
                } else {
                    self.give_back(ready);
                }
            }
            Ok(Detour::Ended(ended)) => self.finished.push_back(ended),
            // The delivery is not answered: the broker delivers it again.
            Err(error) => tracing::error!(%error, event_type = %self.lane.event_type, "an event was left unsettled"),
        }
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
}

//! The loop's calls to the register, and what follows from the answers.

use std::sync::Arc;

use backon::BackoffBuilder as _;
use fail::fail_point;
use tokio::time::Instant;

use super::{
    Loop,
    turn::{Turned, turn},
};
use crate::{
    domain::register,
    outage::{Health, backoff},
    ports::{RegisterError, Written},
    work::{
        busy_wait::BusyWait,
        stage::{Confirmed, Detour, Ready, Settled},
    },
};

/// The most events of one call, of each kind. A script over them takes a few milliseconds, in which Redis serves nobody else.
const LARGEST: usize = 256;

impl Loop {
    /// Makes one call to the register that settles what has run and claims what may start.
    pub(super) fn begin_turn(&mut self, health: Health) {
        if self.turn.is_some() || self.turn_at.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.turn_at = None;
        let may_claim = self.may_start() && (health != Health::Down || self.consumer.is_probe() == Some(true));
        let most = if may_claim { self.free().min(LARGEST).min(self.waiting.len()) } else { 0 };
        let claims: Vec<Ready> = self.waiting.drain(..most).collect();
        let settles: Vec<Confirmed> = self.finished.drain(..self.finished.len().min(LARGEST)).collect();
        if claims.is_empty() && settles.is_empty() {
            return;
        }
        self.claiming = claims.len();
        self.turn = Some(Box::pin(turn(Arc::clone(&self.lane), settles, claims)));
    }

    pub(super) fn turned(&mut self, turned: Turned) {
        let Turned { asked, settles, claims, answers } = turned;
        self.turn = None;
        self.claiming = 0;
        let common = Arc::clone(&self.lane.common);
        match answers {
            Ok(answers) => {
                common.register_answered(asked);
                (self.turn_at, self.pauses) = (None, backoff().build());
                for (confirmed, answer) in settles.into_iter().zip(answers.settled) {
                    self.settled(confirmed, answer.is_ok());
                }
                for (ready, answer) in claims.into_iter().zip(answers.claimed) {
                    self.claimed(ready, answer, asked);
                }
            }
            // Redis may have done all of it, and only the answer was lost: both are asked again.
            Err(error) => {
                common.register_failed(asked, &error);
                self.turn_at = Some(Instant::now() + self.pauses.next().unwrap_or_default());
                for confirmed in settles.into_iter().rev() {
                    self.finished.push_front(confirmed);
                }
                for mut ready in claims.into_iter().rev() {
                    ready.is_claim_open = true;
                    self.wait_again(ready);
                }
            }
        }
    }

    pub(super) fn settled(&mut self, confirmed: Confirmed, is_settled: bool) {
        if is_settled {
            return self.acknowledge(confirmed.settled());
        }
        // The key of this event cannot be read. Others are not to wait for it.
        let lane = Arc::clone(&self.lane);
        self.detours.spawn(async move {
            let settled = lane.settle_one(confirmed).await;
            fail_point!("work.settled");
            settled.acknowledge().await;
            fail_point!("work.acknowledged");
            Detour::Over
        });
    }

    pub(super) fn acknowledge(&mut self, settled: Settled) {
        fail_point!("work.settled");
        let written = settled.acknowledge();
        fail_point!("work.acknowledged");
        self.written(written);
    }

    /// Keeps an answer until it is written, or until the lane ends.
    pub(super) fn written(&mut self, written: Written) {
        self.written.push_back(written);
        while self.written.front_mut().is_some_and(Written::is_done) {
            self.written.pop_front();
        }
    }

    /// Takes the register's answer to a claim.
    pub(super) fn claimed(
        &mut self,
        mut ready: Ready,
        answer: Result<register::Claimed, RegisterError>,
        asked: Instant,
    ) {
        let lane = Arc::clone(&self.lane);
        ready.is_claim_open = false;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.end_busy(&mut ready);
                self.detours.spawn(lane.unreadable(ready, error));
                return;
            }
        };
        if answer == register::Claimed::Busy {
            if let Some(ready) = self.wait_in_memory(ready) {
                self.detours.spawn(lane.not_granted(ready, answer));
            }
            return;
        }
        self.end_busy(&mut ready);
        match answer {
            // An event waits to run alone, and this lane has given up its permit while the call was under way.
            register::Claimed::Run { .. } if self.permit.is_none() => {
                self.detours.spawn(async move {
                    lane.unclaim(&mut ready).await;
                    Detour::Ready(ready)
                });
            }
            register::Claimed::Run { fence, crashes, stamp } => {
                fail_point!("work.claimed");
                ready.copying = None;
                let (claimed, too_often) = lane.grant(ready, stamp, (fence, crashes), asked);
                match too_often {
                    Some(decision) => self.follow_up(claimed, decision),
                    None => self.start(claimed),
                }
            }
            register::Claimed::Alone => {
                self.detours.spawn(lane.run_alone(ready));
            }
            answer => {
                self.detours.spawn(lane.not_granted(ready, answer));
            }
        }
    }

    /// Lets an event whose reference is busy wait for a moment, if there is a place for it; else returns it. An event that
    /// waits holds a place of the prefetch: events of other references must not wait behind it for long.
    pub(super) fn wait_in_memory(&mut self, mut ready: Ready) -> Option<Ready> {
        if ready.busy.is_none() {
            if self.busy >= usize::from(self.lane.prefetch / 2) {
                return Some(ready);
            }
            self.busy += 1;
            ready.busy = Some(Box::new(BusyWait::new()));
        }
        let Some(next) = ready.busy.as_mut().and_then(|wait| wait.next()) else {
            self.end_busy(&mut ready);
            return Some(ready);
        };
        let stop = self.lane.common.stop.clone();
        self.detours.spawn(async move {
            stop.run_until_cancelled(tokio::time::sleep_until(next)).await;
            Detour::Ready(ready)
        });
        None
    }

    pub(super) fn end_busy(&mut self, ready: &mut Ready) {
        if ready.busy.take().is_some() {
            self.busy -= 1;
        }
    }
}

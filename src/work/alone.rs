//! One event by itself, from its claim to its settlement: a suspect of a crash, the head of a type that keeps its order, or an
//! event in quarantine. A lane does the same for many events at a time.

use std::{sync::Arc, time::Duration};

use backon::BackoffBuilder as _;
use fail::fail_point;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    execute::RunResult,
    follow_up::Unpublished,
    isolation::{Permit, for_a_while},
    lane::Lane,
    not_run::Wait,
    stage::{Claimed, Confirmed, Detour, Disposition, Ready, Settled, Work},
};
use crate::{
    domain::{
        register,
        settlement::{self, Decision, Next},
        words::plain,
    },
    outage::{Health, backoff},
    ports::RegisterError,
};

/// How the turn of one event ended.
pub(super) enum Turn {
    /// The register has settled it.
    Settled(Settled),
    /// The broker does not take its follow-up, because that is too large. The claim is released.
    Refused(Box<Work>),
    /// The worker stops. No attempt is spent, and the claim is released.
    GivenBack(Box<Work>),
    /// There is no room for its handler. No attempt is spent, and the claim is released.
    NoRoom(Box<Work>, String),
    /// It failed, and is tried again in its place after this long. The claim is released.
    Again(Box<Work>, Duration),
}

impl Lane {
    /// Runs a suspect while nothing else runs. Its worker may have died twice while it ran.
    pub(super) async fn run_alone(self: Arc<Self>, mut ready: Ready) -> Detour {
        tracing::warn!(id = %plain(&ready.event.id), "waiting to run by itself, for its worker died twice while it ran");
        let stop = &self.common.stop;
        let (answer, permit) = loop {
            let alone = self.unless_over(stop, ready.deadline, self.common.isolation.alone()).await;
            let Some(permit) = alone else { return self.give_back(ready).await };
            let (answer, permit) = for_a_while(Some(permit), self.claim_one(&mut ready, true, stop)).await;
            let Some(answer) = answer else { return self.give_back(ready).await };
            if permit.is_some() {
                break (answer, permit);
            }
            // Redis was away for longer than this event may keep others from starting. What is claimed must not wait for
            // others to end, or its lease ends first.
            self.unclaim(&mut ready).await;
        };
        let claimed = match answer {
            Ok((register::Claimed::Run { fence, crashes, stamp }, asked)) => {
                fail_point!("work.claimed");
                self.grant(ready, stamp, (fence, crashes), asked)
            }
            Ok((answer, _)) => {
                drop(permit);
                return self.not_granted(ready, answer).await;
            }
            Err(error) => {
                drop(permit);
                return self.leave_unreadable(ready, error).await;
            }
        };
        let (turn, permit) = self.turn(claimed, permit).await;
        match turn {
            Turn::Settled(settled) => {
                fail_point!("work.settled");
                settled.acknowledge().await;
                fail_point!("work.acknowledged");
            }
            Turn::Refused(work) => self.answer(work, Disposition::Reject).await,
            Turn::GivenBack(work) | Turn::Again(work, _) => self.answer(work, Disposition::GiveBack).await,
            Turn::NoRoom(work, reason) => {
                drop(permit);
                self.log_no_room(&reason);
                return self.wait_as_copy(Ready(work), Wait::NoRoom).await;
            }
        }
        Detour::Over
    }

    /// Gives an event back that has not started.
    async fn give_back(&self, ready: Ready) -> Detour {
        self.answer(ready.0, Disposition::GiveBack).await;
        Detour::Over
    }

    /// Claims one event, and waits until Redis answers. The error is about the event's key alone. `None` if `over` is
    /// cancelled, or the event has waited for too long: then nothing is claimed.
    pub(super) async fn claim_one(
        &self,
        ready: &mut Ready,
        alone: bool,
        over: &CancellationToken,
    ) -> Option<Result<(register::Claimed, Instant), RegisterError>> {
        let mut pauses = backoff().build();
        loop {
            let (asked, claim) = (Instant::now(), ready.claim(alone, self.terms));
            // Never given up half-way: a claim whose answer nobody reads would count as a crash.
            let error = match self.common.register.turn(&[], &[claim]).await {
                Ok(mut turn) => match turn.claimed.pop() {
                    Some(Ok(claimed)) => {
                        self.common.register_answered(asked);
                        return Some(Ok((claimed, asked)));
                    }
                    // It is about this key alone, unless a ping has no answer either.
                    Some(Err(error)) => match self.common.register.ping().await {
                        Ok(()) => {
                            self.common.register_answered(asked);
                            return Some(Err(error));
                        }
                        Err(error) => error,
                    },
                    None => RegisterError::Refused { url: self.common.register.url(), reason: "no answer".to_owned() },
                },
                Err(error) => error,
            };
            self.common.register_failed(asked, &error);
            let pause = tokio::time::sleep(pauses.next().unwrap_or_default());
            if self.unless_over(over, ready.deadline, pause).await.is_none() {
                // The claim may have been granted, and only the answer was lost.
                self.unclaim(ready).await;
                return None;
            }
        }
    }

    /// Runs a claimed event, unless it has crashed its worker too often, and carries out what follows.
    ///
    /// An event that runs alone keeps its permit until it is settled, unless that takes long: an event that kills its worker
    /// between the confirm of a dead letter and its settlement would become two of them.
    pub(super) async fn turn(
        &self,
        (mut claimed, mut decided): (Claimed, Option<Decision>),
        permit: Option<Permit>,
    ) -> (Turn, Option<Permit>) {
        let decision = loop {
            if let Some(decision) = decided.take() {
                break decision;
            }
            let outcome = match self.execute(&claimed).await {
                RunResult::Outcome(outcome) => outcome,
                RunResult::GivenBack => return (Turn::GivenBack(self.let_go(claimed).await), permit),
                RunResult::NoRoom(reason) => return (Turn::NoRoom(self.let_go(claimed).await, reason), permit),
            };
            match self.decide(&claimed.work.event, outcome, claimed.work.tries) {
                Next::Settle(decision) => break decision,
                Next::Again { after, failed } => {
                    Arc::make_mut(&mut claimed.work.event).fail(failed);
                    // A type that keeps its order claims anew for each try: meanwhile the event may be cancelled or replaced.
                    if self.spec.keeps_order() {
                        return (Turn::Again(self.let_go(claimed).await, after), permit);
                    }
                    claimed.work.tries += 1;
                    let pause = tokio::time::sleep(after);
                    if self.common.give_back.run_until_cancelled(pause).await.is_none() {
                        return (Turn::GivenBack(self.let_go(claimed).await), permit);
                    }
                }
            }
        };
        fail_point!("work.handled");
        for_a_while(permit, Box::pin(self.carry_out(claimed, decision))).await
    }

    /// Publishes what follows from a decision, and settles the event.
    async fn carry_out(&self, claimed: Claimed, decision: Decision) -> Turn {
        match self.follow_up(&claimed.work.event, decision).await {
            Ok(Some(end)) => Turn::Settled(self.settle_one(claimed.confirmed(end)).await),
            // Whoever made the event stale has said how it goes on: nothing is settled.
            Ok(None) => {
                let work = self.let_go(claimed).await;
                Turn::Settled(Settled::of_stale(work))
            }
            Err(Unpublished::Closed) => Turn::GivenBack(self.let_go(claimed).await),
            Err(Unpublished::TooLarge) => {
                let work = self.let_go(claimed).await;
                fail_point!("work.released");
                Turn::Refused(work)
            }
        }
    }

    /// Settles one event, until the register has settled it.
    pub(super) async fn settle_one(&self, confirmed: Confirmed) -> Settled {
        let Some(settle) = confirmed.settle(self.terms) else { return confirmed.settled() };
        let (mut pauses, mut is_logged) = (backoff().build(), false);
        loop {
            let asked = Instant::now();
            match self.common.register.settle(std::slice::from_ref(&settle)).await {
                Ok(()) => {
                    self.common.register_answered(asked);
                    return confirmed.settled();
                }
                Err(error @ (RegisterError::Unreachable { .. } | RegisterError::InUse { .. })) => {
                    self.common.register_failed(asked, &error);
                }
                Err(error) => {
                    let (id, event_type) = (confirmed.id(), &self.event_type);
                    if is_logged || self.common.health.now() != Health::Up {
                        tracing::debug!(%error, id, %event_type, "not settled; trying again");
                    } else {
                        tracing::error!(%error, id, %event_type, "it cannot be settled, and is not acknowledged; trying again");
                    }
                    is_logged = true;
                }
            }
            tokio::time::sleep(pauses.next().unwrap_or_default()).await;
        }
    }

    /// Releases the claim of an event that does not go on, if it has one.
    pub(super) async fn let_go(&self, claimed: Claimed) -> Box<Work> {
        let mut ready = Ready(claimed.work);
        if claimed.lease.is_some() {
            self.unclaim(&mut ready).await;
        }
        ready.0
    }

    /// Releases what the event's claim may have come to. The next claim has another token: a release that comes late must not
    /// undo it.
    pub(super) async fn unclaim(&self, ready: &mut Ready) {
        self.release(&ready.event, &ready.event.stamp, ready.token).await;
        ready.renew_token();
    }

    /// Returns an event whose claim the register has granted, and a decision if it has crashed its worker too often to run.
    pub(super) fn grant(
        &self,
        mut ready: Ready,
        stamp: register::CopyVersion,
        (fence, crashes): (i64, u32),
        asked: Instant,
    ) -> (Claimed, Option<Decision>) {
        ready.is_claim_open = false;
        if ready.event.stamp != stamp {
            Arc::make_mut(&mut ready.event).stamp = stamp;
        }
        let event = &ready.event;
        let too_often = if self.spec.keeps_order() || crashes == 0 {
            None
        } else {
            let now = self.common.clock.now();
            settlement::crashed(crashes, event.crashes, event.attempts, self.spec.crash_limit, now)
        };
        if crashes > 0 && too_often.is_none() {
            tracing::warn!(id = %plain(&event.id), event_type = %self.event_type, crashes, "its worker died while it ran; it runs again");
        }
        let lease = self.common.leases.hold(event, self.terms, (ready.token, fence), asked);
        (ready.claimed(Some(lease)), too_often)
    }

    /// Returns what this waits for. `None` if `over` is cancelled, or the deadline has passed.
    pub(super) async fn unless_over<T>(
        &self,
        over: &CancellationToken,
        deadline: Instant,
        wait: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            () = over.cancelled() => None,
            () = tokio::time::sleep_until(deadline) => None,
            done = wait => Some(done),
        }
    }

    /// Publishes what takes the place of an event whose claim the register has not granted.
    pub(super) async fn not_granted(self: Arc<Self>, ready: Ready, answer: register::Claimed) -> Detour {
        match answer {
            register::Claimed::Later(time) => self.wait_as_copy(ready, Wait::Until(time)).await,
            register::Claimed::Busy => self.wait_as_copy(ready, Wait::Busy).await,
            register::Claimed::Stale | register::Claimed::Replaced => {
                self.drop_copy(&ready.event, &answer).await;
                self.answer(ready.0, Disposition::Acknowledge).await;
                Detour::Over
            }
            // Not an answer to a claim that says that it is alone.
            register::Claimed::Alone | register::Claimed::Run { .. } => self.give_back(ready).await,
        }
    }
}

//! One event by itself, from its claim to its settlement: a suspect of a crash, the head of a type that keeps its order, or an
//! event in quarantine. The event loop does the same for many events at a time.

use std::sync::Arc;

use backon::BackoffBuilder as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    isolation::{Permit, for_a_while},
    lane::Lane,
    stage::{Detour, Disposition, Ended, Granted, NotSettled, Ready, Settled},
};
use crate::{
    domain::{register::ClaimAnswer, words::plain},
    outage::{Health, backoff},
    ports::RegisterError,
};

/// The event as settled, or the event without its claim and why it is not settled.
type RunEnd = Result<Settled, (Ready, NotSettled)>;

impl Lane {
    /// Runs a suspect while nothing else runs. Its worker has probably died twice while it ran.
    pub(super) async fn run_alone(self: Arc<Self>, ready: Ready) -> Detour {
        tracing::warn!(id = %plain(&ready.work.event.id), event_type = %self.event_type, "event waits to run alone; it was started twice and never settled");
        let (end, permit) = self.claim_and_run(ready, Instant::now(), true, &self.common.stop).await;
        match end {
            Ok(settled) => {
                settled.acknowledge().await;
                Detour::Over
            }
            Err((ready, why)) => {
                // An event that may not run now keeps no other event from starting while its copy is published.
                drop(permit);
                self.put_off(ready, why).await
            }
        }
    }

    /// Waits until `at`, claims an event, and runs it to its settlement: `alone`, or beside others. If `over` is cancelled before the
    /// claim is granted, or the event has waited for too long, nothing is claimed, and the event is to be given back.
    pub(super) async fn claim_and_run(
        self: &Arc<Self>,
        mut ready: Ready,
        at: Instant,
        alone: bool,
        over: &CancellationToken,
    ) -> (RunEnd, Option<Permit>) {
        let (granted, permit, waits) = loop {
            let isolation = &self.common.isolation;
            let permit = async {
                tokio::time::sleep_until(at).await;
                // Before the wait for the permit, which keeps the events of other types from starting.
                self.switch.on().await;
                // Counted until it starts, so that a grant of a probe is kept for it.
                let waits = self.breaker.as_ref().map(|breaker| breaker.waits());
                if let Some(breaker) = &self.breaker {
                    breaker.admits().await;
                }
                (if alone { isolation.alone().await } else { isolation.shared().await }, waits)
            };
            let Some((permit, waits)) = unless_over(over, ready.work.deadline, permit).await else {
                return (Err((ready, NotSettled::Answer(Disposition::GiveBack))), None);
            };
            // Paused meanwhile.
            if self.switch.is_off() {
                continue;
            }
            if !self.spec.register {
                break (Ok(ready.without_claim(self)), Some(permit), waits);
            }
            let (claimed, permit) = for_a_while(Some(permit), self.claim_one(&mut ready, over)).await;
            let Some((answer, asked)) = claimed else {
                return (Err((ready, NotSettled::Answer(Disposition::GiveBack))), None);
            };
            let may_start = permit.is_some() && !self.switch.is_off();
            if may_start || !matches!(answer, Ok(ClaimAnswer::Run { .. })) {
                break (ready.answered(self, answer, asked), permit, waits);
            }
            // Redis was down for longer than this event may keep others from starting, or the type was paused. A claim must not
            // wait for others to end, or its lease ends first.
            self.unclaim(&mut ready).await;
        };
        match granted {
            Ok(mut granted) => {
                self.lets_run(&mut granted.0);
                drop(waits);
                self.run_to_settlement(granted, permit).await
            }
            Err(not_settled) => (Err(not_settled), permit),
        }
    }

    /// Runs a claimed event, unless it has crashed its worker too often, and carries out what follows.
    ///
    /// An event that runs alone keeps its permit until it is settled, unless that takes long: an event that kills its worker
    /// between the confirm of a dead letter and its settlement would become two of them.
    pub(super) async fn run_to_settlement(
        self: &Arc<Self>,
        (mut claimed, decided): Granted,
        permit: Option<Permit>,
    ) -> (RunEnd, Option<Permit>) {
        let mut ran = match decided {
            Some(decision) => Ok(decision),
            None => self.run(&mut claimed, self.health.starts()).await,
        };
        // A type that keeps its order claims anew for each try: meanwhile the event may be cancelled or replaced.
        while let Err(NotSettled::Again(after)) = ran
            && !self.spec.keeps_order()
        {
            ran = self.run_after(after, &mut claimed).await;
        }
        let decision = match ran {
            Ok(decision) => decision,
            Err(why) => return (Err((self.let_go(claimed, &why).await, why)), permit),
        };
        fail_point!("work.handled");
        let settling = async {
            match self.end(claimed, decision).await {
                Ok(ended) => Ok(self.settle_one(ended).await),
                Err((claimed, disposition)) => {
                    let why = NotSettled::Answer(disposition);
                    Err((self.let_go(claimed, &why).await, why))
                }
            }
        };
        for_a_while(permit, Box::pin(settling)).await
    }

    /// Claims one event, and waits until Redis answers. The error is about the event's key alone. `None` if `over` is
    /// cancelled, or the event has waited for too long: then nothing is claimed.
    async fn claim_one(
        &self,
        ready: &mut Ready,
        over: &CancellationToken,
    ) -> Option<(Result<ClaimAnswer, RegisterError>, Instant)> {
        let mut pauses = backoff().build();
        loop {
            let (asked, claim) = (Instant::now(), ready.claim(true, self.terms));
            // The head of a type that keeps its order never goes into quarantine, however often its worker dies: its claim says
            // that it is alone. Never given up half-way: a claim whose answer nobody reads would count as a crash.
            let error = match self.common.register.settle_and_claim(&[], &[claim]).await {
                Ok(mut answers) => match answers.claimed.pop() {
                    Some(Ok(claimed)) => {
                        self.common.health.answered(asked);
                        self.meters.claimed(Some(&claimed));
                        return Some((Ok(claimed), asked));
                    }
                    // It is about this key alone, unless a ping has no answer either.
                    Some(Err(error)) => match self.common.register.ping().await {
                        Ok(()) => {
                            self.common.health.answered(asked);
                            self.meters.claimed(None);
                            return Some((Err(error), asked));
                        }
                        Err(error) => error,
                    },
                    None => RegisterError::Refused { url: self.common.register.url(), reason: "no answer".to_owned() },
                },
                Err(error) => error,
            };
            self.common.register_failed(asked, &error);
            let pause = tokio::time::sleep(pauses.next().unwrap_or_default());
            if unless_over(over, ready.work.deadline, pause).await.is_none() {
                // The claim may have been granted, and only the answer was lost.
                self.unclaim(ready).await;
                return None;
            }
        }
    }

    /// Settles one event, until the register has settled it.
    pub(super) async fn settle_one(&self, ended: Ended) -> Settled {
        let Some(settle) = ended.settle(self.terms) else { return ended.settled(self) };
        let (mut pauses, mut is_logged) = (backoff().build(), false);
        loop {
            let asked = Instant::now();
            match self.common.register.settle(std::slice::from_ref(&settle)).await {
                Ok(()) => {
                    self.common.health.answered(asked);
                    return ended.settled(self);
                }
                Err(error @ (RegisterError::Unreachable { .. } | RegisterError::InUse { .. })) => {
                    self.common.register_failed(asked, &error);
                }
                Err(error) => {
                    let (id, event_type) = (ended.id(), &self.event_type);
                    if is_logged || self.common.health.now() != Health::Up {
                        tracing::debug!(%error, id, %event_type, "event not settled; trying again");
                    } else {
                        tracing::error!(%error, id, %event_type, "event not settled, so its delivery is not acknowledged; trying again");
                    }
                    is_logged = true;
                }
            }
            tokio::time::sleep(pauses.next().unwrap_or_default()).await;
        }
    }
}

/// Returns what this waits for. `None` if `over` is cancelled, or the deadline has passed.
async fn unless_over<T>(over: &CancellationToken, deadline: Instant, wait: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = over.cancelled() => None,
        () = tokio::time::sleep_until(deadline) => None,
        done = wait => Some(done),
    }
}

//! The claim of one event: made, granted, and released if the event does not go on.

use std::sync::Arc;

use backon::{BackoffBuilder as _, Retryable as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    lane::Lane,
    stage::{Claimed, Granted, NotSettled, Ready},
};
use crate::{
    domain::{
        register::{ClaimAnswer, Release},
        settlement,
        words::plain,
    },
    outage::backoff,
    ports::RegisterError,
};

impl Lane {
    /// Claims one event, and waits until Redis answers. The error is about the event's key alone. `None` if `over` is
    /// cancelled, or the event has waited for too long: then nothing is claimed.
    pub(super) async fn claim_one(
        &self,
        ready: &mut Ready,
        alone: bool,
        over: &CancellationToken,
    ) -> Option<(Result<ClaimAnswer, RegisterError>, Instant)> {
        let mut pauses = backoff().build();
        loop {
            let (asked, claim) = (Instant::now(), ready.claim(alone, self.terms));
            // Never given up half-way: a claim whose answer nobody reads would count as a crash.
            let error = match self.common.register.settle_and_claim(&[], &[claim]).await {
                Ok(mut answers) => match answers.claimed.pop() {
                    Some(Ok(claimed)) => {
                        self.common.register_answered(asked);
                        self.meters.claimed(Some(&claimed));
                        return Some((Ok(claimed), asked));
                    }
                    // It is about this key alone, unless a ping has no answer either.
                    Some(Err(error)) => match self.common.register.ping().await {
                        Ok(()) => {
                            self.common.register_answered(asked);
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
            if self.unless_over(over, ready.work.deadline, pause).await.is_none() {
                // The claim may have been granted, and only the answer was lost.
                self.unclaim(ready).await;
                return None;
            }
        }
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

    /// Takes the register's answer to a claim that was made at `asked`.
    pub(super) fn grant(
        &self,
        ready: Ready,
        answer: Result<ClaimAnswer, RegisterError>,
        asked: Instant,
    ) -> Result<Granted, (Ready, NotSettled)> {
        let (fence, crashes, stamp) = match answer {
            Ok(ClaimAnswer::Run { fence, crashes, stamp }) => (fence, crashes, stamp),
            Ok(ClaimAnswer::Alone) => return Err((ready.refused(), NotSettled::Alone)),
            Ok(ClaimAnswer::Busy) => return Err((ready.refused(), NotSettled::Busy)),
            Ok(ClaimAnswer::Later(time)) => return Err((ready.refused(), NotSettled::Later(time))),
            Ok(answer @ (ClaimAnswer::Stale | ClaimAnswer::Replaced)) => {
                return Err((ready.refused(), NotSettled::Unwanted(answer)));
            }
            Err(error) => return Err((ready, NotSettled::Damaged(error))),
        };
        fail_point!("work.claimed");
        let leases = &self.common.leases;
        let claimed = ready.claimed(stamp, |event, token| leases.hold(event, self.terms, (token, fence), asked));
        let event = claimed.event();
        let too_often = if self.spec.keeps_order() || crashes == 0 {
            None
        } else {
            let now = self.common.clock.now();
            settlement::crashed(crashes, event.crashes, event.attempts, self.spec.crash_limit, now)
        };
        // A type that keeps its order claims anew for each try.
        if too_often.is_none() && crashes > 0 && claimed.tries() == 0 {
            tracing::warn!(id = %plain(&event.id), event_type = %self.event_type, crashes, "event runs again; it was started before and never settled");
        }
        Ok((claimed, too_often))
    }

    /// Returns an event whose run is given up, without its claim.
    pub(super) async fn let_go(&self, claimed: Claimed) -> Ready {
        let (mut ready, lease) = claimed.given_up();
        if lease.is_some() {
            self.unclaim(&mut ready).await;
            fail_point!("work.released");
        }
        ready
    }

    /// Releases the claim, if there is one, granted or not, so that the event's next start does not count as a crash. The next
    /// claim has a token of its own, which a late release cannot undo. If Redis does not answer, a task tries again for as long as
    /// the lease may last: then the token holds nothing any more.
    pub(super) async fn unclaim(&self, ready: &mut Ready) {
        let Some(token) = ready.work.token.take() else { return };
        let (event, terms) = (&ready.work.event, self.terms);
        let release = Release { subject: event.subject(), stamp: event.stamp.clone(), token, due: event.due(), terms };
        let asked = Instant::now();
        let Err(error) = self.common.register.release(std::slice::from_ref(&release)).await else { return };
        if matches!(error, RegisterError::Unreadable { .. }) {
            // The claim goes when a person mends or deletes the key.
            return tracing::debug!(%error, id = %plain(&event.id), event_type = %self.event_type, "claim not released");
        }
        self.unanswered(asked, &error, &event.id, "claim not released; trying again");
        let common = Arc::clone(&self.common);
        tokio::spawn(async move {
            let releasing = (|| common.register.release(std::slice::from_ref(&release))).retry(backoff());
            if tokio::time::timeout(terms.lease, releasing).await.is_err() {
                tracing::warn!(%error, id = %plain(&release.subject.id), "claim not released; the event's next start counts as a crash");
            }
        });
    }
}

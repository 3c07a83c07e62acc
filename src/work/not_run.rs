//! An event that does not go on: its claim is released, a copy of it waits, or its delivery is answered.

use std::{sync::Arc, time::Duration};

use backon::Retryable as _;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::{
    lane::Lane,
    open::COPY_LIMIT,
    stage::{Claimed, Detour, Disposition, NotSettled, Ready},
};
use crate::{
    domain::{
        event::Event,
        register::{ClaimAnswer, Release},
        time,
        transition::Transition,
        words::{Reference, plain},
    },
    outage::backoff,
    ports::{Receipt, RegisterError},
};

/// The shortest wait of an event that the register puts off. The event is due by Redis's clock: if this machine's clock is
/// ahead of that, the event would go round without a pause until Redis's clock is there too.
const SOONEST_LATER: Duration = Duration::from_millis(250);

/// Why an event may not run now, and waits as a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The register puts the event off until then.
    Until(jiff::Timestamp),
    /// Its reference is busy, or its handler is unavailable.
    Busy,
    /// Its key in Redis is damaged: it holds a value that the register did not write. In the busy hatchery the event is neither
    /// lost nor counted by RabbitMQ as returned.
    Unreadable,
}

impl Lane {
    /// Parts with an event that this worker does not run now.
    pub(super) async fn put_off(self: Arc<Self>, ready: Ready, why: NotSettled) -> Detour {
        match why {
            NotSettled::Busy | NotSettled::Alone | NotSettled::Unavailable | NotSettled::Waits => {
                self.wait_as_copy(ready, Wait::Busy).await
            }
            NotSettled::Later(time) => self.wait_as_copy(ready, Wait::Until(time)).await,
            NotSettled::Unwanted(answer) => self.drop_delivery(ready, answer).await,
            NotSettled::Damaged(error) => self.leave_unreadable(ready, error).await,
            NotSettled::Held => Detour::Ready(ready),
            NotSettled::Answer(disposition) => self.answer(ready, disposition).await,
            NotSettled::Again(_) => self.answer(ready, Disposition::GiveBack).await,
        }
    }

    /// Drops the delivery of a copy that is not wanted any more.
    pub(super) async fn drop_delivery(&self, ready: Ready, claimed: ClaimAnswer) -> Detour {
        self.tell_dropped(&ready.work.event, &claimed).await;
        let passed = self.pass(&ready.work.event).await;
        self.answer(ready, passed.err().unwrap_or(Disposition::Acknowledge)).await
    }

    /// Tells that a copy is not wanted any more: a warning if a person has re-sent it, else for debugging.
    async fn tell_dropped(&self, event: &Event, claimed: &ClaimAnswer) {
        let id = plain(&event.id);
        if *claimed == ClaimAnswer::Replaced {
            self.common.journal.tell(&self.counters, event, &Transition::Replaced);
        } else {
            self.counters.stale();
        }
        if !event.by_hand {
            return tracing::debug!(%id, ?claimed, "event dropped: it is not wanted any more");
        }
        let why = match self.common.register.slot(&event.subject(), &event.stamp.slot).await {
            Ok(Some(slot)) => slot.why_dropped(event.stamp.version),
            Ok(None) | Err(_) => "it was handled, cancelled or replaced by a newer event".to_owned(),
        };
        let (reference, version) = (event.reference.as_ref().map(Reference::as_str).map(plain), event.stamp.version);
        tracing::warn!(%id, event_type = %self.event_type, reference = reference.as_deref(), version, %why, "dropped an event that was re-sent by hand");
    }

    /// Publishes a copy of an event that may not run now, and acknowledges the delivery. If the broker does not confirm the
    /// copy in time, the event is tried again as it came: while the broker blocks publishers, its reference may become free.
    pub(super) async fn wait_as_copy(self: Arc<Self>, mut ready: Ready, why: Wait) -> Detour {
        if !ready.stays_here() {
            return self.answer(ready, Disposition::GiveBack).await;
        }
        let mut copying = ready.work.copying.take().unwrap_or_else(|| {
            let (lane, event) = (Arc::clone(&self), Arc::clone(&ready.work.event));
            AbortOnDropHandle::new(tokio::spawn(async move { lane.copy_until(&event, why).await }))
        });
        let Ok(copied) = timeout(COPY_LIMIT, &mut copying).await else {
            ready.work.copying = Some(copying);
            return Detour::Ready(ready);
        };
        // A task that has ended without a result may have published nothing.
        self.answer(ready, copied.unwrap_or(Disposition::GiveBack)).await
    }

    /// Publishes the copy. Returns what becomes of the delivery.
    pub(super) async fn copy_until(&self, event: &Event, why: Wait) -> Disposition {
        Disposition::after(match why {
            Wait::Until(time) => {
                let wait = time::until(self.common.clock.shared(), time).max(SOONEST_LATER);
                // The person who puts an event off wants it to run.
                let copy = Event { expires: None, ..event.clone() };
                self.send_on(&copy, wait).await
            }
            Wait::Busy => self.send_busy(event, true).await,
            Wait::Unreadable => self.send_busy(event, false).await,
        })
    }

    /// Finds out whether a claim failed because of its key alone. Otherwise Redis is down, and the event is claimed again.
    pub(super) async fn unreadable(self: Arc<Self>, ready: Ready, error: RegisterError) -> Detour {
        let asked = Instant::now();
        if let Err(error) = self.common.register.ping().await {
            self.common.register_failed(asked, &error);
            return Detour::Ready(ready);
        }
        self.common.health.answered(asked);
        self.leave_unreadable(ready, error).await
    }

    /// Lets an event wait whose key in Redis is damaged, so that its claim has failed.
    pub(super) async fn leave_unreadable(self: Arc<Self>, mut ready: Ready, error: RegisterError) -> Detour {
        self.log_unreadable(&ready.work.event, &error, ready.work.event.busy);
        self.unclaim(&mut ready).await;
        self.wait_as_copy(ready, Wait::Unreadable).await
    }

    /// Logs an event whose key in Redis is damaged, less and less often while the event comes again.
    pub(super) fn log_unreadable(&self, event: &Event, error: &RegisterError, before: u32) {
        if before == 0 || before.is_power_of_two() {
            let (id, event_type) = (&event.id, &self.event_type);
            let reference = event.reference.as_ref().map(Reference::as_str);
            tracing::error!(%error, id, %event_type, reference, "event not started: its key in Redis is damaged; delete or mend it");
        }
    }

    /// Gives a run up: releases its claim, and parts with the event.
    pub(super) async fn give_up(self: Arc<Self>, claimed: Claimed, why: NotSettled) -> Detour {
        let ready = self.let_go(claimed, &why).await;
        self.put_off(ready, why).await
    }

    /// Returns an event whose run is given up, without its claim.
    ///
    /// A release forgets the start, and a delivery that is given back would expire although it was started. So an event with an
    /// expiry is not released then: it counts as one that has crashed its worker once, and waits for the end of its lease.
    pub(super) async fn let_go(&self, claimed: Claimed, why: &NotSettled) -> Ready {
        let (mut ready, lease) = claimed.given_up();
        let is_cut_off = ready.work.has_begun && matches!(why, NotSettled::Answer(Disposition::GiveBack));
        // One crash is enough to tell that the event was started, and a release keeps it.
        let forgets_start = ready.work.event.expires.is_some() && ready.work.crashes == 0;
        if lease.is_some() && !(is_cut_off && forgets_start) {
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

    /// Answers a delivery that is not settled, and waits until the answer is written.
    pub(super) async fn answer(&self, ready: Ready, disposition: Disposition) -> Detour {
        self.answer_receipt(ready.into_receipt(), disposition).await;
        Detour::Over
    }

    /// Like [`answer`](Self::answer), for a delivery that holds no due event too.
    pub(super) async fn answer_receipt(&self, receipt: Box<dyn Receipt>, disposition: Disposition) {
        let is_back = disposition == Disposition::GiveBack;
        if is_back {
            self.counters.given_back();
        }
        let written = receipt.answer(disposition);
        if !is_back {
            fail_point!("work.acknowledged");
        }
        written.await;
    }
}

//! An event that may not run now: a copy of it waits, or its delivery is dropped.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::{
    lane::Lane,
    open::COPY_LIMIT,
    stage::{Detour, Disposition, NotSettled, Ready},
};
use crate::{
    domain::{
        event::Event,
        register::ClaimAnswer,
        time,
        transition::Transition,
        words::{Reference, plain},
    },
    ports::RegisterError,
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
            NotSettled::Answer(disposition) => self.answer(ready, disposition).await,
            NotSettled::Again(_) => self.answer(ready, Disposition::GiveBack).await,
        }
    }

    /// Drops the delivery of a copy that is not wanted any more.
    pub(super) async fn drop_delivery(&self, ready: Ready, claimed: ClaimAnswer) -> Detour {
        self.drop_copy(&ready.work.event, &claimed).await;
        let disposition = self.pass(&ready.work.event).await;
        self.answer(ready, disposition).await
    }

    /// Drops a copy that is not wanted any more: logs it as a warning if a person has re-sent it, else for debugging.
    pub(super) async fn drop_copy(&self, event: &Event, claimed: &ClaimAnswer) {
        let id = plain(&event.id);
        if *claimed == ClaimAnswer::Replaced {
            self.tell(event, &Transition::Replaced);
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
                self.send_on(event, wait).await
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
        self.common.register_answered(asked);
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
}

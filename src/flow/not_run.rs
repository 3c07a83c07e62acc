//! What becomes of a delivery that the register does not let run.

use std::time::Duration;

use super::{
    claim::ClaimReply,
    lane::{Disposition, Lane},
};
use crate::domain::{
    event::Event,
    register, time,
    words::{Reference, plain},
};

/// What Redis puts off waits at least this long. It is due by Redis's clock: where this machine's is ahead of that, it would go
/// round without a pause until Redis's is there too.
const SOONEST_LATER: Duration = Duration::from_millis(250);

impl Lane {
    /// What becomes of a delivery that the register does not let run.
    pub(super) async fn not_run(&self, event: &Event, asked: ClaimReply) -> Disposition {
        match asked {
            ClaimReply::Answered(claimed @ (register::Claimed::Stale | register::Claimed::Replaced)) => {
                self.log_dropped(event, &claimed).await;
                self.common.counters.unwanted(&claimed);
                Disposition::Acknowledge
            }
            ClaimReply::Answered(register::Claimed::Later(time)) => {
                let wait = time::until(self.common.clock.now(), time).max(SOONEST_LATER);
                self.send_on(event, wait).await.into()
            }
            ClaimReply::Answered(register::Claimed::Busy) => self.send_busy(event, true).await.into(),
            ClaimReply::Unreadable => self.send_busy(event, false).await.into(),
            // Not an answer to who claims alone.
            ClaimReply::Answered(register::Claimed::Alone | register::Claimed::Run { .. }) => Disposition::GiveBack,
        }
    }

    /// Logs a dropped event: as a warning where a person has re-sent it, else for debugging.
    async fn log_dropped(&self, event: &Event, claimed: &register::Claimed) {
        let id = plain(&event.id);
        if !event.by_hand {
            return tracing::debug!(%id, ?claimed, "dropped");
        }
        let why = match self.common.register.slot(&event.subject(), &event.stamp.slot).await {
            Ok(Some(slot)) => slot.why_dropped(event.stamp.version),
            Ok(None) | Err(_) => "it was handled, cancelled or replaced by a newer event".to_owned(),
        };
        let (reference, version) = (event.reference.as_ref().map(Reference::as_str).map(plain), event.stamp.version);
        tracing::warn!(%id, event_type = %self.event_type, reference = reference.as_deref(), version, %why, "dropped an event that was re-sent by hand");
    }
}

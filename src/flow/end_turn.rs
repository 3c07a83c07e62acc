//! The end of a turn, with or without room for the handler.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use super::{
    claim::StartDeadline,
    lane::{Lane, RunEnd},
};

/// The pause before another try.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// The same for who has to run alone.
const PAUSE_ALONE: Duration = Duration::from_secs(30);

impl Lane {
    /// The end of a turn. What found no room keeps its place among those that run for a moment, so that as many try as may
    /// run, unless others wait until nothing is held of its type. It keeps nothing else: it is claimed no longer, and whatever
    /// has room may start. Who is to run alone has stopped all others, and waits longer before it does that again, without a
    /// place.
    pub(super) async fn end_turn(
        &self,
        way: RunEnd,
        permit: OwnedSemaphorePermit,
        backoff: &StartDeadline,
        alone: bool,
    ) -> RunEnd {
        if !matches!(way, RunEnd::NotStarted) {
            return way;
        }
        if alone {
            drop(permit);
            self.unless_over(backoff, tokio::time::sleep(PAUSE_ALONE)).await;
        } else {
            backoff.until.run_until_cancelled(self.unless_over(backoff, tokio::time::sleep(PAUSE))).await;
            drop(permit);
        }
        way
    }

    pub(super) fn log_no_room(&self, reason: &str) {
        let event_type = &self.event_type;
        if self.cramped.begins() {
            tracing::warn!(%event_type, reason, "there is no room for a handler; it is tried again soon, and no attempt is spent");
        } else {
            tracing::debug!(%event_type, reason, "there is no room for a handler");
        }
    }

    /// A handler has begun for which there had been none so often before.
    pub(super) fn log_room(&self, times: u64) {
        if self.cramped.ends(times) {
            tracing::warn!(event_type = %self.event_type, "there is room for a handler again");
        }
    }
}

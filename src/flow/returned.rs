//! What goes on as a copy without having run: what has come back again and again, which RabbitMQ counts anew, and what makes way.

use std::time::Duration;

use fail::fail_point;
use tokio::time::timeout;

use super::{
    end_turn::PAUSE,
    lane::{Disposition, Lane},
    settle::{ON_ITS_WAY, Unpublished},
};
use crate::{
    domain::{event::Event, words::plain},
    ports::Receipt,
};

/// How long an event that has not run waits for the confirm of its copy. Then it is handled as it came: a broker that blocks
/// publishers has to be emptied, and a prefetch full of events that wait for it would stop that for ever. The copy may be
/// published all the same. With the register both are one event, and the second is dropped; without it both run.
pub(super) const COPY_LIMIT: Duration = Duration::from_secs(5);

impl Lane {
    /// An event of a type with the register that has come back so often that RabbitMQ would soon put it into dead-letter
    /// itself, for deaths that were others': the register knows better who is to blame. As a copy it is counted anew. The receipt
    /// comes back where the broker has not confirmed the copy in time.
    pub(super) async fn count_anew(
        &self,
        event: &Event,
        returns: u32,
        receipt: Box<dyn Receipt>,
    ) -> Option<Box<dyn Receipt>> {
        tracing::warn!(id = %plain(&event.id), event_type = %self.event_type, returns, "it comes back again and again; published again, to be counted anew");
        self.move_on(self.send_on(event, Duration::ZERO), receipt).await
    }

    /// Publishes a redelivered event that had no id again, with one. The register would take each redelivery for another event,
    /// and count no crash. The copy counts the redelivery as a crash, for the worker may have died while the event ran.
    ///
    /// `None` where the broker has not confirmed the copy in time. Both have one id.
    ///
    /// Other events run meanwhile, unlike in [`Lane::move_on`]: a worker that stops gives back many such events at once. The copy
    /// itself waits before it may run: a copy that kills the process before the acknowledgement has left would be made again at each
    /// start, with another id. If the process dies for another reason in between, the event may run twice, as any event without an id.
    pub(super) async fn republish_with_id(&self, event: &Event) -> Option<Disposition> {
        let copy = Event { crashes: 1, ..event.clone() };
        let published = timeout(COPY_LIMIT, self.send_on(&copy, PAUSE)).await.ok()?;
        self.common.expect_back(PAUSE + ON_ITS_WAY);
        tracing::info!(id = %plain(&event.id), event_type = %self.event_type, "a redelivered event had no id; published it again with one");
        fail_point!("work.put-aside");
        Some(published.into())
    }

    /// Publishes a delivery's copy and answers it. While it is in both queues nothing runs, if that can be had: a neighbour
    /// that kills the process in between makes two of it, with a count each. The receipt comes back where the broker has not
    /// confirmed the copy in time.
    pub(super) async fn move_on(
        &self,
        publishing: impl Future<Output = Result<(), Unpublished>>,
        receipt: Box<dyn Receipt>,
    ) -> Option<Box<dyn Receipt>> {
        let still = self.common.quiet.still().await;
        let Ok(published) = timeout(COPY_LIMIT, publishing).await else { return Some(receipt) };
        fail_point!("work.put-aside");
        self.answer(published.into(), receipt).await;
        drop(still);
        None
    }
}

//! What goes on as a copy without having run: what has come back again and again, which RabbitMQ counts anew, and what makes way.

use std::time::Duration;

use fail::fail_point;

use super::{quiet::for_a_while, settle::Unpublished, work::Lane};
use crate::{
    domain::{event::Event, words::plain},
    ports::Receipt,
};

impl Lane {
    /// An event of a type with the register that has come back so often that RabbitMQ would soon put it into dead-letter
    /// itself, for deaths that were others': the register knows better who is to blame. As a copy it is counted anew.
    pub(super) async fn count_anew(&self, event: &Event, returns: u32, receipt: Box<dyn Receipt>) {
        tracing::warn!(id = %plain(&event.id), event_type = %self.event_type, returns, "it comes back again and again; published again, to be counted anew");
        self.move_on(self.send_on(event, Duration::ZERO), receipt).await;
    }

    /// An event of a type with the register that came without an id, and back. The register would take each redelivery for
    /// another event, and count no crash. The copy has an id. It counts the return as a crash, for its worker may have died
    /// while it ran. A first delivery runs without a copy: a broker that is blocked takes none, and has to be emptied.
    pub(super) async fn name(&self, event: Event, receipt: Box<dyn Receipt>) {
        tracing::info!(id = %plain(&event.id), event_type = %self.event_type, "came without an id, and back; published again with an id");
        let copy = Event { crashes: 1, ..event };
        self.move_on(self.send_on(&copy, Duration::ZERO), receipt).await;
    }

    /// Publishes a delivery's copy and answers it. While it is in both queues nothing runs, if that can be had: a neighbour
    /// that kills the process in between makes two of it, with a count each.
    pub(super) async fn move_on(
        &self,
        publishing: impl Future<Output = Result<(), Unpublished>>,
        receipt: Box<dyn Receipt>,
    ) {
        let (published, still) = for_a_while(self.common.quiet.still().await, publishing).await;
        fail_point!("work.put-aside");
        self.answer(published.into(), receipt).await;
        drop(still);
    }
}

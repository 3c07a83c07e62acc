//! A lane: one type in a worker, with its settings and its handler.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use backon::Retryable as _;
use tokio::time::Instant;
use uuid::Uuid;

use super::common::Common;
use crate::{
    domain::{
        event::Event,
        register::{CopyVersion, Release, Terms},
        spec::TypeSpec,
        words::{EventType, plain},
    },
    handler::Handler,
    outage::backoff,
    ports::RegisterError,
};

/// The time between two log lines about room for handlers.
const SELDOM: Duration = Duration::from_mins(1);

/// One type in a worker: its settings and its handler.
pub(super) struct Lane {
    pub(super) common: Arc<Common>,
    pub(super) event_type: EventType,
    pub(super) spec: TypeSpec,
    pub(super) terms: Terms,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) concurrency: usize,
    pub(super) prefetch: u16,
    /// Whether runs begin in the event loop.
    pub(super) inline: bool,
    /// When the log last said that there is no room for a handler.
    pub(super) no_room: Mutex<Option<Instant>>,
}

impl Lane {
    /// Releases a claim whose event is given back, so that its next start does not count as a crash. If Redis does not
    /// answer, a task of its own tries again for as long as the lease may last: then the token holds nothing any more.
    pub(super) async fn release(&self, event: &Event, stamp: &CopyVersion, token: Uuid) {
        let (subject, due, terms) = (event.subject(), event.due(), self.terms);
        let release = Release { subject, stamp: stamp.clone(), token, due, terms };
        let asked = Instant::now();
        let Err(error) = self.common.register.release(std::slice::from_ref(&release)).await else { return };
        if matches!(error, RegisterError::Unreadable { .. }) {
            // Whoever mends the key removes the claim with it.
            return tracing::debug!(%error, id = %plain(&event.id), event_type = %self.event_type, "not released");
        }
        self.unanswered(asked, &error, &event.id, "not released; trying again");
        let common = Arc::clone(&self.common);
        tokio::spawn(async move {
            let releasing = (|| common.register.release(std::slice::from_ref(&release))).retry(backoff());
            if tokio::time::timeout(terms.lease, releasing).await.is_err() {
                tracing::warn!(%error, id = %plain(&release.subject.id), "not released; its next start counts as a crash");
            }
        });
    }

    /// Notes a call about an event that had no answer, and that holds the event up no longer.
    pub(super) fn unanswered(&self, asked: Instant, error: &RegisterError, id: &str, consequence: &str) {
        self.common.unanswered(asked, error, (id, self.event_type.as_str()), consequence);
    }

    /// Logs once a minute that the machine has no room for a handler.
    pub(super) fn log_no_room(&self, reason: &str) {
        let mut said = self.no_room.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| said.elapsed() >= SELDOM) {
            *said = Some(Instant::now());
            tracing::warn!(event_type = %self.event_type, reason, "there is no room for a handler; its event is tried again in a moment, and no attempt is spent");
        } else {
            tracing::debug!(event_type = %self.event_type, reason, "there is no room for a handler");
        }
    }
}

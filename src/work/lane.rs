//! A lane: one type in a worker, with its settings and its handler. The type's event loop is in `event_loop`.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{common::Common, counters::Counters, meters::Meters, readiness::TypeReadiness};
use crate::{
    domain::{register::Terms, spec::TypeSpec, words::EventType},
    handler::Handler,
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
    pub(super) counters: Counters,
    pub(super) meters: Meters,
    pub(super) readiness: TypeReadiness,
}

impl Lane {
    /// Notes a call about an event that failed, and for which the event does not wait.
    pub(super) fn unanswered(&self, asked: Instant, error: &RegisterError, id: &str, consequence: &str) {
        self.common.unanswered(asked, error, (id, self.event_type.as_str()), consequence);
    }

    /// Logs once a minute that the machine has no room for a handler.
    pub(super) fn log_no_room(&self, reason: &str) {
        let mut said = self.no_room.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| said.elapsed() >= SELDOM) {
            *said = Some(Instant::now());
            tracing::warn!(event_type = %self.event_type, reason, "no room for a handler on this machine; its event runs again in a moment, and no attempt is spent");
        } else {
            tracing::debug!(event_type = %self.event_type, reason, "no room for a handler on this machine");
        }
    }
}

//! A lane: one type in a worker, with its settings and its handler. The type's event loop is in `event_loop`.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    breaker::Breaker, common::Common, counters::Counters, meters::Meters, readiness::TypeReadiness, switches::Switch,
};
use crate::{
    domain::{event::Event, register::Terms, spec::TypeSpec, transition::Transition, words::EventType},
    handler::Handler,
    outage::HandlerHealth,
    ports::RegisterError,
};

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
    /// The circuit breaker, if the type has one.
    pub(super) breaker: Option<Arc<Breaker>>,
    /// Whether the handler is available.
    pub(super) health: HandlerHealth,
    pub(super) counters: Counters,
    pub(super) meters: Meters,
    pub(super) readiness: TypeReadiness,
    pub(super) switch: Switch,
}

impl Lane {
    /// Tells what has happened to an event.
    pub(super) fn tell(&self, event: &Event, transition: &Transition) {
        self.counters.count(transition);
        if *transition == Transition::LeaseLost {
            self.meters.leases_lost.increment(1);
        }
        self.common.journal.tell(event, transition);
    }

    /// Notes a call about an event that failed, and for which the event does not wait.
    pub(super) fn unanswered(&self, asked: Instant, error: &RegisterError, id: &str, consequence: &str) {
        self.common.unanswered(asked, error, (id, self.event_type.as_str()), consequence);
    }
}

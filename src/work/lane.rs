//! A lane: one type in a worker, with its settings and its handler; and the state that all lanes of the worker share. The type's event
//! loop is in `event_loop`.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    breaker::Breaker,
    counters::{Counters, Meters, Totals},
    error::WorkError,
    isolation::Isolation,
    journal::Journal,
    late::LateRuns,
    leases::Leases,
    readiness::{Readiness, TypeReadiness},
    switches::{Switch, Switchboard},
};
use crate::{
    domain::{
        register::Terms,
        spec::{Topology, TypeSpec},
        words::{EventType, plain},
    },
    handler::Handler,
    outage::{BrokerOutage, ConsumerOutage, HandlerHealth, Health, RegisterHealth},
    ports::{Broker, Clock, Delivery, Register, RegisterError},
    routes::Routes,
    trace::Traces,
};

/// How long the last publishes and settlements of a stopping worker may take.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(2);

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
    /// Notes a call about an event that failed, and for which the event does not wait.
    pub(super) fn unanswered(&self, asked: Instant, error: &RegisterError, id: &str, consequence: &str) {
        self.common.unanswered(asked, error, (id, self.event_type.as_str()), consequence);
    }
}

/// The state that all types of a worker share.
pub(super) struct Common {
    pub(super) topology: Arc<Topology>,
    pub(super) routes: Routes,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) register: Arc<dyn Register>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) isolation: Isolation,
    pub(super) late: Arc<LateRuns>,
    /// The queues in which a message had a priority.
    pub(super) prioritised: Mutex<BTreeSet<String>>,
    pub(super) leases: Arc<Leases>,
    /// Cancelled when the worker stops: nothing is started any more, and deliveries that have not started are given back.
    pub(super) stop: CancellationToken,
    /// Cancelled after the drain limit: events that run are given back too.
    pub(super) give_back: CancellationToken,
    /// Cancelled when even the last publishes and settlements have taken too long. The broker delivers again what was not
    /// acknowledged.
    pub(super) abandon: CancellationToken,
    /// Each delivery that the worker holds has a clone.
    pub(super) held: Arc<()>,
    /// When the last copy that the worker has sent to a hatchery comes back.
    pub(super) expected: Mutex<Option<Instant>>,
    /// Wakes the quarantine when this worker has put an event there.
    pub(super) quarantined: Notify,
    /// Whether Redis answers.
    pub(super) health: RegisterHealth,
    /// Why the worker stops by itself.
    pub(super) failure: Mutex<Option<WorkError>>,
    /// Whether follow-ups wait for the broker.
    pub(super) broker_outage: BrokerOutage,
    /// Which queues wait for the broker.
    pub(super) consumer_outage: ConsumerOutage,
    pub(super) totals: Arc<Totals>,
    pub(super) readiness: Readiness,
    pub(super) switches: Switchboard,
    pub(super) journal: Journal,
    pub(super) traces: Traces,
}

impl Common {
    /// Returns the number of deliveries that the worker holds.
    pub(super) fn holds(&self) -> usize {
        Arc::strong_count(&self.held) - 1
    }

    /// Warns once of a queue in which a message has a priority.
    pub(super) fn warn_of_priority(&self, queue: impl FnOnce() -> String, delivery: &Delivery) {
        let Some(priority) = delivery.priority else { return };
        let mut warned = self.prioritised.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queue();
        if warned.insert(queue.clone()) {
            let id = delivery.message.properties.message_id.as_deref().map(plain);
            tracing::warn!(
                id = id.as_deref(),
                priority,
                "a message of {queue} has a priority: RabbitMQ 4 delivers such messages first, and may delay the timers of all others; its publisher must set none"
            );
        }
    }

    /// Notes that a copy comes back after this long. A worker that stops when its queues are empty waits for it.
    pub(super) fn expect_back(&self, wait: Duration) {
        let then = Some(Instant::now() + wait);
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        *expected = then.max(*expected);
    }

    pub(super) fn expects_nothing(&self) -> bool {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|then| then <= Instant::now())
    }

    /// Notes that a call to the register, made at `asked`, had no answer.
    pub(super) fn register_failed(&self, asked: Instant, error: &RegisterError) {
        // Waiting would not help: a person has to say whose register it is.
        if let RegisterError::InUse { .. } = error {
            self.fail(WorkError::Register(error.clone()));
        }
        self.health.failed(asked, error);
    }

    /// Notes a call about an event that failed, and for which the event does not wait. An outage is logged once, and not for
    /// each event. Another refusal may concern this event alone.
    pub(super) fn unanswered(
        &self,
        asked: Instant,
        error: &RegisterError,
        (id, event_type): (&str, &str),
        consequence: &str,
    ) {
        if matches!(error, RegisterError::Unreachable { .. } | RegisterError::InUse { .. }) {
            tracing::debug!(%error, id, %event_type, "{consequence}");
            self.register_failed(asked, error);
        } else if self.health.now() == Health::Up {
            tracing::warn!(%error, id, %event_type, "{consequence}");
        } else {
            tracing::debug!(%error, id, %event_type, "{consequence}");
        }
    }

    /// Waits until a publish that the broker does not take is given up: after the drain limit, and half the time that the last
    /// publishes have after it.
    pub(super) async fn cannot_wait(&self) {
        self.give_back.cancelled().await;
        tokio::time::sleep(LAST_WORDS / 2).await;
    }

    /// Stops the worker for a reason that would concern every further event.
    pub(super) fn fail(&self, reason: WorkError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.stop.cancel();
    }
}

//! What the lanes of a worker have in common.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    counters::Counters,
    outage::{BrokerOutage, RegisterOutage},
    quiet::Isolation,
    register::Batches,
    routes::Routes,
    worker::WorkError,
};
use crate::{
    domain::spec::Topology,
    ports::{Broker, Clock, RegisterError},
};

/// How long the last publishes and settles of a stopping worker may take.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(2);

/// What all lanes of a worker share.
pub(super) struct Common {
    pub(super) topology: Arc<Topology>,
    pub(super) routes: Routes,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) register: Batches,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) quiet: Isolation,
    /// Nothing new is started, and what has not started is given back.
    pub(super) stop: CancellationToken,
    /// The drain limit is over: what runs is given back too.
    pub(super) give_back: CancellationToken,
    /// Even the last publishes and settles have taken too long: the broker delivers again what is not acknowledged.
    pub(super) abandon: CancellationToken,
    /// Until then copies are on their way back that found their reference busy.
    pub(super) expected: Mutex<Option<Instant>>,
    /// Something of a type without the register may have killed its worker, and waits to run alone.
    pub(super) suspects: Notify,
    /// Redis did not answer the last question: nothing of a type that asks it is consumed.
    pub(super) away: watch::Sender<bool>,
    /// It was away, and has answered no claim and no settlement since.
    pub(super) doubted: watch::Sender<bool>,
    /// What is told of both.
    pub(super) register_outage: RegisterOutage,
    /// Why the worker has to stop by itself.
    pub(super) failure: Mutex<Option<WorkError>>,
    /// Whether follow-ups wait for the broker.
    pub(super) broker_outage: BrokerOutage,
    pub(super) counters: Counters,
}

impl Common {
    /// A copy comes back after this long, for which a worker that stops when its queues are empty waits.
    pub(super) fn expect_back(&self, wait: Duration) {
        let then = Some(Instant::now() + wait);
        let mut expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        *expected = then.max(*expected);
    }

    pub(super) fn expects_nothing(&self) -> bool {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|then| then <= Instant::now())
    }

    /// A question that was asked then had no answer: nothing more of the types that ask Redis is consumed until it answers.
    pub(super) fn register_is_away(&self, asked: Instant, error: &RegisterError) {
        // Waiting would not help: somebody has to say whose register it is.
        if let RegisterError::InUse { .. } = error {
            self.fail(WorkError::Register(error.clone()));
        }
        self.register_outage.failed(asked, error);
        self.observe_outage();
    }

    /// All of it has answered a ping that was asked then. Says whether it is in reach by that.
    pub(super) fn register_is_there(&self, asked: Instant) -> bool {
        let there = self.register_outage.is_there(asked);
        self.observe_outage();
        there
    }

    /// It did something for an event, as was asked then, and does more than to be there.
    pub(super) fn register_answers(&self, asked: Instant) {
        if *self.doubted.borrow() {
            self.register_outage.answered(asked);
            self.observe_outage();
        }
    }

    /// Looked up while nobody else tells of it: whoever comes last tells what is so.
    fn observe_outage(&self) {
        let heed = |told: &mut bool, now: bool| std::mem::replace(told, now) != now;
        self.doubted.send_if_modified(|doubted| heed(doubted, self.register_outage.lasts()));
        self.away.send_if_modified(|away| heed(away, self.register_outage.is_out_of_reach()));
    }

    /// Until what waits for the broker is better given back: the drain limit is over, and half of what the last publishes have
    /// after it.
    pub(super) async fn cannot_wait(&self) {
        self.give_back.cancelled().await;
        tokio::time::sleep(LAST_WORDS / 2).await;
    }

    /// Stops the worker for a reason that more events would only meet again.
    pub(super) fn fail(&self, reason: WorkError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.stop.cancel();
    }
}

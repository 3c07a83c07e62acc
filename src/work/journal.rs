//! The journal: it is told what has happened to an event, once at each place, counts it, and says it in the log, on the stream of
//! the life of events, and to those who observe.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use super::counters::Counters;
use crate::{
    domain::{
        event::Event,
        reason::error_of,
        register::ended_runs::EndedRuns,
        transition::{Then, Transition},
        ttl::roughly,
        words::{EventType, plain},
    },
    records::Records,
};

/// A function that is told what happens to events.
pub(super) type Observer = Arc<dyn Fn(&Event, &Transition) + Send + Sync>;

/// The most characters of an error that `topology status` is told.
const ERROR: usize = 200;

/// Whom a worker tells what happens to its events.
#[derive(Default)]
pub(super) struct Journal {
    observers: Vec<Observer>,
    records: Arc<Records>,
    ended: Mutex<BTreeMap<EventType, EndedRuns>>,
}

impl Journal {
    pub(super) fn new(observers: Vec<Observer>, records: Arc<Records>) -> Self {
        Self { observers, records, ended: Mutex::default() }
    }

    /// Returns what publishes the records of events.
    pub(super) fn records(&self) -> &Records {
        &self.records
    }

    /// Returns the runs that have ended since the last call, by type.
    pub(super) fn take_ended(&self) -> BTreeMap<EventType, EndedRuns> {
        std::mem::take(&mut self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note_end(&self, event: &Event, transition: &Transition) {
        let error = match transition {
            Transition::Done { .. } | Transition::Discarded { .. } | Transition::Requeued { .. } => None,
            // The attempt ends with its last try.
            Transition::Failed { then: Then::InPlace { .. }, .. } => return,
            Transition::Failed { error, .. } => Some(error.as_str()),
            Transition::Dropped { reason, .. } | Transition::DeadLettered { reason, took: Some(_) } => {
                Some(error_of(reason))
            }
            _ => return,
        };
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = match ended.get_mut(&event.event_type) {
            Some(runs) => runs,
            None => ended.entry(event.event_type.clone()).or_default(),
        };
        runs.ended += 1;
        if let Some(error) = error {
            runs.failed += 1;
            runs.error = Some(error.chars().take(ERROR).collect());
        }
    }

    /// Tells what has happened to an event. `counters` are those of its type.
    pub(super) fn tell(&self, counters: &Counters, event: &Event, transition: &Transition) {
        counters.count(transition);
        log(event, transition);
        self.note_end(event, transition);
        self.records.tell(event, transition);
        for observer in &self.observers {
            // An observer that panics must not end the event loop.
            if catch_unwind(AssertUnwindSafe(|| observer(event, transition))).is_err() {
                tracing::error!(id = %plain(&event.id), event_type = %event.event_type, "an observer has panicked");
            }
        }
    }
}

/// Thousands of events a second succeed: nothing is formatted for a level that is off.
fn log(event: &Event, transition: &Transition) {
    let (event_type, id) = (&event.event_type, &event.id);
    match transition {
        Transition::Started | Transition::PutOff | Transition::Replaced => {}
        Transition::Done { took } => {
            tracing::debug!(%event_type, id = %plain(id), "in" = %roughly(*took), "done");
        }
        Transition::Discarded { reason, took } => {
            tracing::info!(%event_type, id = %plain(id), "in" = %roughly(*took), "discarded by its handler: {reason}");
        }
        Transition::Cancelled { took } => {
            tracing::info!(%event_type, id = %plain(id), "in" = %roughly(*took), "cancelled while it ran");
        }
        Transition::Failed { attempt, max_attempts, error, took, then } => match then {
            Then::Retry { after } => {
                tracing::info!(%event_type, id = %plain(id), "in" = %roughly(*took), "attempt {attempt} of {max_attempts} failed, retrying in {}: {error}", roughly(*after));
            }
            // The attempt ends with its last try.
            Then::InPlace { tried, after } => {
                tracing::info!(%event_type, id = %plain(id), "in" = %roughly(*took), "try {tried} of attempt {attempt} failed, trying again in {}: {error}", roughly(*after));
            }
            Then::Block { after } => {
                tracing::warn!(%event_type, id = %plain(id), "in" = %roughly(*took), "attempt {attempt} failed, trying again in {}; the events behind it wait: {error}", roughly(*after));
            }
        },
        Transition::Dropped { reason, took } => {
            tracing::warn!(%event_type, id = %plain(id), "in" = %roughly(*took), "event dropped after a failure: {reason}");
        }
        Transition::Requeued { at, reason, took } => {
            tracing::debug!(%event_type, id = %plain(id), "in" = %roughly(*took), "requeued for {at}: {reason}");
        }
        Transition::DeadLettered { reason, took } => {
            let took = took.map(|took| tracing::field::display(roughly(took)));
            tracing::warn!(%event_type, id = %plain(id), "in" = took, "event dead-lettered: {reason}");
        }
        Transition::Expired { at, dead_lettered: true } => {
            tracing::warn!(%event_type, id = %plain(id), "event dead-lettered: it expired at {at}, before it started");
        }
        Transition::Expired { at, dead_lettered: false } => {
            tracing::info!(%event_type, id = %plain(id), "event discarded: it expired at {at}, before it started");
        }
        Transition::LeaseLost => {
            tracing::warn!(%event_type, id = %plain(id), "the lease is lost; another worker may run an event of its reference by now");
        }
    }
}

//! The journal: it is told what has happened to an event, once at each place, and says it in the log and to those who observe.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use metrics::counter;

use crate::{
    domain::{
        event::Event,
        transition::{Then, Transition},
        ttl::roughly,
        words::plain,
    },
    meter,
};

/// A function that is told what happens to events.
pub(crate) type Observer = Arc<dyn Fn(&Event, &Transition) + Send + Sync>;

/// Whom a worker tells what happens to its events.
#[derive(Default)]
pub(crate) struct Journal {
    observers: Vec<Observer>,
}

impl Journal {
    pub(crate) fn new(observers: Vec<Observer>) -> Self {
        Self { observers }
    }

    /// Tells what has happened to an event.
    pub(crate) fn tell(&self, event: &Event, transition: &Transition) {
        log(event, transition);
        if *transition == Transition::LeaseLost {
            counter!(meter::LEASES_LOST, "type" => event.event_type.as_str().to_owned()).increment(1);
        }
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
        Transition::LeaseLost => {
            tracing::warn!(%event_type, id = %plain(id), "the lease is lost; another worker may run an event of its reference by now");
        }
    }
}

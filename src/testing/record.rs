//! The records of runs and of waiting events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;

use crate::{
    domain::{event::Event, settlement::Outcome, words::EventType},
    handler::{Handler, Run},
    ports::Clock,
};

/// One run of a handler ([`TestHatchery::runs`](super::TestHatchery::runs)).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordedRun {
    /// The time at which the run began.
    pub at: Timestamp,
    /// The event as the handler received it. Its attempts do not count this run.
    pub event: Arc<Event>,
    /// See [`Run::fence`].
    pub fence: Option<i64>,
    /// The handler's outcome. An error is recorded as its [`Outcome::Retry`]. `None` while the handler runs, and if it did not
    /// return because it panicked, reached its time limit, or its worker was killed.
    pub outcome: Option<Outcome>,
}

/// An event in one of the broker's queues ([`TestHatchery::waiting`](super::TestHatchery::waiting)).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WaitingEvent {
    /// The event.
    pub event: Event,
    /// The time at which the event is delivered to a worker; in the past if no worker has taken it yet.
    pub due: Timestamp,
    /// The name of the queue, such as `payroll.hatchery.1h`.
    pub queue: String,
}

/// All runs, in the order in which they began.
#[derive(Default)]
pub(super) struct Record(Mutex<Vec<RecordedRun>>);

impl Record {
    pub(super) fn of(&self, event_type: &EventType) -> Vec<RecordedRun> {
        self.runs().iter().filter(|run| run.event.event_type == *event_type).cloned().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.runs().len()
    }

    fn runs(&self) -> MutexGuard<'_, Vec<RecordedRun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handler whose runs are recorded.
pub(super) struct Recorder {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) record: Arc<Record>,
    pub(super) clock: Arc<dyn Clock>,
}

#[async_trait]
impl Handler for Recorder {
    async fn handle(&self, run: Run) -> Outcome {
        let number = {
            let mut runs = self.record.runs();
            let (at, event) = (self.clock.now(), run.event.clone());
            runs.push(RecordedRun { at, event, fence: run.fence, outcome: None });
            runs.len() - 1
        };
        let outcome = self.handler.handle(run).await;
        if let Some(run) = self.record.runs().get_mut(number) {
            run.outcome = Some(outcome.clone());
        }
        outcome
    }
}

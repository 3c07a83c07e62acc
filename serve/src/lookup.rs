//! What Redis knows of events that are about to be published.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use hatchery::{Events, NewEvent, State};
use tokio::time::{Instant, timeout};

/// How long a publish waits for what Redis knows of its id, as long as for a version.
const WAIT: Duration = Duration::from_millis(250);
/// How long Redis is not asked after a call without an answer.
const REST: Duration = Duration::from_secs(1);

/// What Redis knows of events that are about to be published.
pub(crate) struct Lookup {
    events: Events,
    rests: Mutex<Option<Instant>>,
}

impl Lookup {
    pub(crate) fn new(events: Events) -> Self {
        Self { events, rests: Mutex::default() }
    }

    /// Returns the state of each event that Redis knows by the id that its client has chosen. Of an event that competes with others, and while
    /// Redis does not answer, nothing is known.
    pub(crate) async fn states(&self, events: &[Option<&NewEvent>]) -> Vec<Option<State>> {
        let rests = *self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        if rests.is_none_or(|until| Instant::now() >= until) {
            if let Ok(Ok(states)) = timeout(WAIT, self.events.states(events)).await {
                return states;
            }
            *self.rests.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + REST);
        }
        vec![None; events.len()]
    }
}

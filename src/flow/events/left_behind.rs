//! Events of a type that the file does not have.

use jiff::Timestamp;

use super::{Events, EventsError};
use crate::domain::{
    register::{
        Subject,
        index::{Find, Found},
        search::{Known, State},
    },
    words::EventType,
};

/// So many are counted. More need no more exact number.
const MOST: u64 = 1_000;

/// Events of a page.
const PAGE: usize = 500;

/// How many events wait that no worker of the file takes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftBehind {
    /// So many.
    pub events: u64,
    /// There are more than were counted.
    pub or_more: bool,
    /// When the next one is due.
    pub next_due: Option<Timestamp>,
}

impl Events {
    /// The events of a type that wait, run or are tried again, whether the file has the type or not. None where there are
    /// none. A dead letter is not among them: it is in a queue, where it is seen.
    ///
    /// # Errors
    /// When Redis does not answer.
    #[doc(hidden)]
    pub async fn left_behind(&self, event_type: &EventType) -> Result<Option<LeftBehind>, EventsError> {
        let subject = Subject { event_type: event_type.clone(), reference: None, id: String::new() };
        let mut behind = LeftBehind { events: 0, or_more: false, next_due: None };
        let mut after = None;
        loop {
            let find = Find { event_type: event_type.clone(), due_from: None, due_before: None, after, limit: PAGE };
            let Found { events, next } = self.shared.index.find(&find).await?;
            for known in events.into_iter().map(|shown| Known::of(&subject, shown)) {
                if matches!(known.state, State::Waiting | State::Running | State::Retry) {
                    behind.events += 1;
                    behind.next_due = behind.next_due.or(known.due);
                }
            }
            match next {
                Some(_) if behind.events >= MOST => behind.or_more = true,
                Some(next) => {
                    after = Some(next);
                    continue;
                }
                None => {}
            }
            return Ok((behind.events > 0).then_some(behind));
        }
    }
}

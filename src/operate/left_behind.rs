//! Waiting events of a type that is not in the file.

use jiff::Timestamp;

use super::{error::EventsError, shared::Events};
use crate::domain::{
    register::{
        Subject,
        event_info::EventInfo,
        event_state::State,
        index::{Find, Found},
    },
    words::EventType,
};

/// Events that are counted at most.
const MOST: u64 = 1_000;

/// Events of a page.
const PAGE: usize = 500;

/// Pages of overdue events that are read at most. They include dead letters, of which there may be very many.
const DUE_PAGES: usize = 20;

/// The number of waiting events that no worker of the file takes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftBehind {
    /// The number of events that were counted.
    pub events: u64,
    /// Whether there are more than were counted.
    pub or_more: bool,
    /// The due time of the next one.
    pub next_due: Option<Timestamp>,
}

impl Events {
    /// Counts the events of a type that wait, run or are retried, also if the file does not have the type. `None` means there are
    /// none. Dead letters do not count, because they are visible in their queue.
    ///
    /// # Errors
    /// If Redis does not answer.
    #[doc(hidden)]
    pub async fn left_behind(&self, event_type: &EventType) -> Result<Option<LeftBehind>, EventsError> {
        let now = self.shared.clock.shared();
        let mut behind = LeftBehind { events: 0, or_more: false, next_due: None };
        let due = Find {
            event_type: event_type.clone(),
            due_from: None,
            due_before: Some(now),
            uncontested_of: None,
            after: None,
            limit: PAGE,
        };
        let not_due = Find { due_from: Some(now), due_before: None, ..due.clone() };
        self.count_waiting(due, DUE_PAGES, &mut behind).await?;
        self.count_waiting(not_due, usize::MAX, &mut behind).await?;
        Ok((behind.events > 0).then_some(behind))
    }

    async fn count_waiting(&self, mut find: Find, pages: usize, behind: &mut LeftBehind) -> Result<(), EventsError> {
        let subject = Subject { event_type: find.event_type.clone(), reference: None, id: String::new() };
        for _ in 0..pages {
            let Found { events, next } = self.shared.index.find(&find).await?;
            for known in events.into_iter().map(|shown| EventInfo::of(&subject, shown)) {
                if matches!(known.state, State::Waiting | State::Running | State::Retry) {
                    behind.events += 1;
                    behind.next_due = behind.next_due.or(known.due);
                }
            }
            if next.is_none() {
                return Ok(());
            }
            if behind.events >= MOST {
                break;
            }
            find.after = next;
        }
        behind.or_more = true;
        Ok(())
    }
}

//! The events of a type that were due first, as any register tells them.

use jiff::Timestamp;

use crate::{
    domain::{
        register::{Subject, ended_runs::LongestWaiting, event_info::EventInfo, event_state::State, index::Find},
        words::EventType,
    },
    ports::{Index, RegisterError},
};

/// Returns the events of a type that were due before this time and wait for a worker, from the first page that has any. `pages`
/// is the size of a page and the most pages: most of the events that were due long ago are dead letters.
///
/// # Errors
/// When the register is unreachable, or refuses a call.
pub async fn longest_waiting(
    index: &impl Index,
    event_type: &EventType,
    before: Timestamp,
    pages: (usize, usize),
) -> Result<LongestWaiting, RegisterError> {
    let mut waiting = Vec::new();
    let until_any = |page: Vec<EventInfo>| {
        waiting.extend(page.into_iter().filter(|event| matches!(event.state, State::Waiting | State::Retry)));
        waiting.is_empty()
    };
    let may_be_more = walk(index, event_type, before, pages, until_any).await?;
    Ok(LongestWaiting { events: waiting, may_be_more })
}

/// Returns how many events of a type are in dead-letter and still to be handled. `None` if there are more than the pages have.
///
/// # Errors
/// When the register is unreachable, or refuses a call.
#[cfg(feature = "internals")]
pub async fn open_letters(
    index: &impl Index,
    event_type: &EventType,
    before: Timestamp,
    pages: (usize, usize),
) -> Result<Option<u64>, RegisterError> {
    let mut open = 0;
    let count = |page: Vec<EventInfo>| {
        open += page.iter().map(|event| u64::from(event.state == State::DeadLetter)).sum::<u64>();
        true
    };
    let may_be_more = walk(index, event_type, before, pages, count).await?;
    Ok((!may_be_more).then_some(open))
}

/// Passes the events of a type that were due before this time to `goes_on`, page by page, the oldest first, until it returns
/// `false`. Returns whether there may be more.
async fn walk(
    index: &impl Index,
    event_type: &EventType,
    before: Timestamp,
    (limit, pages): (usize, usize),
    mut goes_on: impl FnMut(Vec<EventInfo>) -> bool,
) -> Result<bool, RegisterError> {
    let (event_type, due_before) = (event_type.clone(), Some(before));
    let subject = Subject { event_type: event_type.clone(), reference: None, id: String::new() };
    let mut find = Find { due_before, ..Find::first(event_type, limit) };
    for _ in 0..pages {
        let found = index.find(&find).await?;
        find.after = found.next;
        let page = found.events.into_iter().map(|shown| EventInfo::of(&subject, shown)).collect();
        if !goes_on(page) || find.after.is_none() {
            break;
        }
    }
    Ok(find.after.is_some())
}

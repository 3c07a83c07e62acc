//! Changes of a schedule's state in Redis, and the record of its events.

use jiff::Timestamp;

use crate::{
    domain::{event::Event, schedule::state::ScheduleState, spec::Topology, wire::kept},
    ports::{NamedStates, Register, RegisterError, StateKind},
};

/// Changes the state of a schedule. `change` is called again with the new state if somebody else has changed the state meanwhile. Returns
/// the state after the change; `None` from `change` leaves the state as it is. `last` is the state as this caller has just
/// left or found it, which saves reading it.
///
/// # Errors
/// When Redis does not answer.
pub async fn change(
    states: &(impl NamedStates + ?Sized),
    schedule: &str,
    last: Option<&ScheduleState>,
    mut change: impl FnMut(Option<ScheduleState>) -> Option<ScheduleState> + Send,
) -> Result<Option<ScheduleState>, RegisterError> {
    let mut last = last.map(ScheduleState::text);
    loop {
        let (before, is_read) = match last.take() {
            Some(text) => (Some(text), false),
            None => (states.state(StateKind::Schedule, schedule).await?, true),
        };
        let Some(after) = change(before.as_deref().and_then(ScheduleState::parse)) else { return Ok(None) };
        let text = after.text();
        let is_unchanged = is_read && before.as_ref() == Some(&text);
        if is_unchanged || states.replace_state(StateKind::Schedule, schedule, before.as_deref(), Some(&text)).await? {
            return Ok(Some(after));
        }
    }
}

/// Tells the register's index of an event that was published.
pub(crate) async fn record(
    register: &(impl Register + ?Sized),
    topology: &Topology,
    event: &Event,
) -> Result<(), RegisterError> {
    let Some(spec) = topology.types.get(&event.event_type) else { return Ok(()) };
    let record = kept::record(event, event.due(), spec.keep_payload, spec.terms(&topology.redis));
    register.record(&[record]).await
}

/// Returns a time in ms since 1970.
#[must_use]
pub fn time(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
}

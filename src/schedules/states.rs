//! What Redis is told of schedules.

use jiff::Timestamp;

use crate::{
    domain::{event::Event, register::Record, schedule::state::State, spec::Topology, wire::kept},
    ports::{Register, RegisterError, ScheduleStates},
};

/// Changes the state of a schedule. `change` is called again with the new state if somebody else has changed the state meanwhile. Returns
/// the state after the change; `None` from `change` leaves the state as it is.
pub(crate) async fn change(
    states: &(impl ScheduleStates + ?Sized),
    schedule: &str,
    mut change: impl FnMut(Option<State>) -> Option<State> + Send,
) -> Result<Option<State>, RegisterError> {
    loop {
        let before = states.schedule(schedule).await?;
        let Some(after) = change(before.as_deref().and_then(State::parse)) else { return Ok(None) };
        let text = after.text();
        if before.as_ref() == Some(&text) || states.replace_schedule(schedule, before.as_deref(), Some(&text)).await? {
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
    let record = Record {
        subject: event.subject(),
        slot: event.stamp.slot.clone(),
        version: event.stamp.version,
        due: event.due(),
        reason: event.reason.clone(),
        kept: kept::of(event, spec.keep_payload),
        terms: spec.terms(&topology.redis),
    };
    register.record(&[record]).await
}

/// Returns a time in ms since 1970.
pub(crate) fn time(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
}

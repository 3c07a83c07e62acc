//! A schedule: its definition in the file, and its state as far as it is known.

use hatchery::internals::{
    schedule::{definition::Definition, rule::Mode, state::ScheduleState},
    schedules,
};
use jiff::Timestamp;

/// A schedule: its definition in the file, and its state in Redis.
#[derive(Clone, Debug)]
pub struct ScheduleInfo {
    /// The name.
    pub name: String,
    /// The definition. `None` if the file does not have the schedule.
    pub definition: Option<Definition>,
    /// The state. `None` if no `topology apply` has armed the schedule, or Redis has lost the state.
    pub state: Option<ScheduleState>,
}

impl ScheduleInfo {
    /// Returns the next instants of the schedule: that of the armed event, and those that follow it. None while the schedule is paused.
    /// With `mode: sequential` there is one, because the next one depends on the run.
    #[must_use]
    pub fn next(&self, count: usize) -> Vec<Timestamp> {
        let (Some(definition), Some(state)) = (&self.definition, &self.state) else { return Vec::new() };
        let Some(armed) = state.armed.filter(|_| state.paused.is_none()) else { return Vec::new() };
        if definition.rule.mode == Mode::Sequential {
            return vec![schedules::time(armed.arm.due)];
        }
        let first = Some(schedules::time(armed.arm.position));
        std::iter::successors(first, |at| definition.rule.calendar.next_after(*at)).take(count).collect()
    }
}

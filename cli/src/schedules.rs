//! The words about what an apply does with the schedules.

use hatchery_admin::{ScheduleChange, ScheduleChanges};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::GREEN;

/// The change of a schedule by an apply, made or planned.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Armed {
    /// The schedule.
    name: String,
    /// `unchanged`, `armed`, `armed again`, `paused` or `removed`.
    change: &'static str,
    /// When its next event is due, if it was armed.
    #[schemars(with = "Option<String>")]
    next: Option<jiff::Timestamp>,
}

impl Armed {
    pub(crate) fn of((name, change): (String, ScheduleChange)) -> Self {
        let (change, next) = match change {
            ScheduleChange::Unchanged => ("unchanged", None),
            ScheduleChange::Armed(at) => ("armed", Some(at)),
            ScheduleChange::ArmedAgain(at) => ("armed again", Some(at)),
            ScheduleChange::Paused => ("paused", None),
            ScheduleChange::Removed => ("removed", None),
        };
        Self { name, change, next }
    }

    /// Tells whether an apply changes anything for this schedule.
    pub(crate) fn is_change(&self) -> bool {
        self.change != "unchanged"
    }

    /// Returns the sign, the name and the change, for the line of a plan.
    pub(crate) fn planned(&self) -> (char, &str, String) {
        let Self { name, change, next } = self;
        match (*change, next) {
            ("armed", Some(at)) => ('+', name, format!("armed, next at {at}")),
            ("removed", _) => ('-', name, "removed; its next event does not run".to_owned()),
            ("paused", _) => ('~', name, "changed; it stays paused".to_owned()),
            (change, Some(at)) => ('~', name, format!("{change}, next at {at}")),
            (change, None) => ('~', name, change.to_owned()),
        }
    }

    fn line(&self) -> Option<String> {
        let Self { name, change, next } = self;
        match (*change, next) {
            ("unchanged", _) => None,
            ("paused", _) => Some(format!("schedule {name} changed; it stays paused\n")),
            ("removed", _) => Some(format!("schedule {name} removed\n")),
            (change, Some(at)) => Some(format!("{GREEN}schedule {name} {change}{GREEN:#}, next at {at}\n")),
            (change, None) => Some(format!("schedule {name} {change}\n")),
        }
    }
}

/// Returns the schedules of a plan; `None` if Redis does not tell.
pub(crate) fn armed(schedules: &Result<ScheduleChanges, String>) -> Option<Vec<Armed>> {
    Some(schedules.as_ref().ok()?.iter().cloned().map(Armed::of).collect())
}

/// Returns a line for each schedule that was changed.
pub(crate) fn lines(armed: &[Armed]) -> String {
    armed.iter().filter_map(Armed::line).collect()
}

//! The changes that an apply makes beside the objects of the broker: schedules and pauses.

use hatchery_admin::{Applied, PauseChange, PauseLine, Planned, ScheduleChange};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::GREEN;

/// The changes to schedules and pauses, made or planned. `None` if Redis, or the broker, does not tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Besides {
    pub(crate) schedules: Option<Vec<Armed>>,
    pub(crate) pauses: Option<Vec<PlannedPause>>,
}

impl Besides {
    pub(crate) fn planned(planned: &Planned) -> Self {
        let (schedules, pauses) = (planned.schedules.as_ref().ok(), planned.pauses.as_ref().ok());
        Self {
            schedules: schedules.map(|schedules| schedules.iter().cloned().map(Armed::of).collect()),
            pauses: pauses.map(|pauses| pauses.iter().map(PlannedPause::of).collect()),
        }
    }

    pub(crate) fn applied(applied: &Applied) -> Self {
        Self {
            schedules: Some(applied.schedules.iter().cloned().map(Armed::of).collect()),
            pauses: Some(applied.pauses.iter().map(PlannedPause::of).collect()),
        }
    }

    /// Whether both are known.
    pub(crate) const fn is_known(&self) -> bool {
        self.schedules.is_some() && self.pauses.is_some()
    }

    /// Whether an apply changes any of them.
    pub(crate) fn is_change(&self) -> bool {
        self.changed().next().is_some() || self.pauses.iter().flatten().next().is_some()
    }

    /// Returns the schedules that an apply changes.
    pub(crate) fn changed(&self) -> impl Iterator<Item = &Armed> {
        self.schedules.iter().flatten().filter(|schedule| schedule.is_change())
    }

    /// Returns the sign, the kind, the name and the change of each line of a plan.
    pub(crate) fn rows(&self) -> Vec<(char, &'static str, String, String)> {
        let schedules = self.changed().map(|schedule| {
            let (sign, name, change) = schedule.planned();
            (sign, "schedule", name.to_owned(), change)
        });
        let pauses = self.pauses.iter().flatten().map(|pause| {
            let (sign, name, change) = pause.planned();
            (sign, "pause", name, change)
        });
        schedules.chain(pauses).collect()
    }

    /// Returns a line for each that was changed.
    pub(crate) fn lines(&self) -> String {
        let schedules = self.schedules.iter().flatten().filter_map(Armed::line);
        schedules.chain(self.pauses.iter().flatten().map(PlannedPause::line)).collect()
    }
}

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

    /// Returns the line for a schedule that was changed.
    pub(crate) fn line(&self) -> Option<String> {
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

/// A pause of the file that an apply begins or ends.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct PlannedPause {
    #[serde(flatten)]
    pause: PauseLine,
    /// Whether it begins. Otherwise it ends.
    begins: bool,
}

impl PlannedPause {
    pub(crate) fn of(change: &PauseChange) -> Self {
        Self { pause: PauseLine::from(&change.pause), begins: change.begins }
    }

    /// Returns the sign, the name and the change, for the line of a plan.
    pub(crate) fn planned(&self) -> (char, String, String) {
        let reason = &self.pause.reason;
        let name = self.pause.name.as_ref().map_or_else(|| "all".to_owned(), |_| self.pause.what());
        match (self.begins, reason.is_empty()) {
            (true, false) => ('+', name, format!("begins: \"{reason}\"")),
            (true, true) => ('+', name, "begins".to_owned()),
            (false, _) => ('-', name, "ends".to_owned()),
        }
    }

    pub(crate) fn line(&self) -> String {
        let (_, name, change) = self.planned();
        format!("pause of {name} {change}\n")
    }
}

//! The changes that an apply makes beside the objects of the broker: schedules and pauses.

use hatchery_admin::{Applied, PauseChange, PauseLine, Planned};
use schemars::JsonSchema;
use serde::Serialize;

use crate::schedules::{self, Armed};

/// The changes to schedules and pauses, made or planned. `None` if Redis, or the broker, does not tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Besides {
    pub(crate) schedules: Option<Vec<Armed>>,
    pub(crate) pauses: Option<Vec<PlannedPause>>,
}

impl Besides {
    pub(crate) fn planned(planned: &Planned) -> Self {
        let pauses = planned.pauses.as_ref().ok();
        Self {
            schedules: schedules::armed(&planned.schedules),
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
        let pauses = self.pauses.iter().flatten().map(PlannedPause::line);
        schedules::lines(self.schedules.as_deref().unwrap_or_default()) + &pauses.collect::<String>()
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

//! The words about the pauses that an apply begins and ends.

use hatchery_admin::{PauseChange, PauseLine};
use schemars::JsonSchema;
use serde::Serialize;

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

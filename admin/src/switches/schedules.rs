//! The pauses of schedules in Redis, which follow the switches.

use std::{fmt::Display, time::Duration};

use hatchery::{
    Word,
    internals::switches::{Name, Pause, Paused, Switches},
};
use jiff::Timestamp;

use super::change::FIRST;
use crate::{
    admin::Admin,
    error::AdminError,
    schedules::{Schedules, SchedulesError},
    watch::Watch,
};

impl Admin {
    /// Notes the pauses of schedules in Redis at once. Workers would do it within half a minute.
    pub(super) async fn hold_schedules(&self, pauses: &[Pause]) -> Result<(), SchedulesError> {
        for pause in pauses {
            if let Paused::Schedule(Name(name)) = &pause.of {
                Schedules(self.events()?).hold(name.as_str(), pause).await?;
            }
        }
        Ok(())
    }

    /// Resumes schedules in Redis, and publishes their next events. Returns when these are due.
    pub(super) async fn resume_schedules(&self, what: &[Paused]) -> Result<Vec<(Word, Timestamp)>, SchedulesError> {
        let names = what.iter().filter_map(|of| if let Paused::Schedule(Name(name)) = of { Some(name) } else { None });
        let names: Vec<&Word> = names.collect();
        let mut next = Vec::new();
        if names.is_empty() {
            return Ok(next);
        }
        let hatchery = self.builder.clone().connect().await?;
        for name in names {
            let due = Schedules(hatchery.events()).resume(name.as_str()).await?;
            next.extend(due.map(|due| (name.clone(), due)));
        }
        hatchery.close().await;
        Ok(next)
    }

    /// Takes over the pauses of schedules that are in Redis alone into the switches, where they outlast it.
    pub(crate) async fn take_over_pauses(&self, patience: Duration, watch: &dyn Watch) -> Result<(), AdminError> {
        if self.topology().schedules.is_empty() {
            return Ok(());
        }
        let failed = |error: &dyn Display| AdminError::NotSwitched(error.to_string());
        let schedules = Schedules(self.events()?);
        let pauses = schedules.unswitched().await.map_err(|error| failed(&error))?;
        if pauses.is_empty() {
            return Ok(());
        }
        let now = self.time().await?;
        let next = |known: Option<&Switches>| {
            let known = known.cloned().unwrap_or_default();
            Ok(Some(pauses.iter().fold(known, |switches, pause| switches.with(pause.clone(), now))))
        };
        self.change(FIRST, patience, watch, next).await.map_err(|error| failed(&error))?;
        for pause in &pauses {
            if let Paused::Schedule(Name(name)) = &pause.of {
                schedules.hold(name.as_str(), pause).await.map_err(|error| failed(&error))?;
            }
        }
        Ok(())
    }
}

/// The switches are written, and Redis or the broker does not know of them yet.
pub(crate) fn unfinished(error: &SchedulesError) -> AdminError {
    let why = format!("the switches are written, but not all schedules follow them yet: {error}. Run it again");
    AdminError::Partly { why, left: None }
}

//! The switches cannot be read: logged once when it begins and once when it ends. Each minute if the worker starts nothing meanwhile,
//! because a person has to do something.

use std::time::Duration;

use tokio::time::Instant;

use super::reminder::Reminder;

/// How long the switches are not read, although they were before, until the log says so. A broker that restarts is said by others.
const LONG: Duration = Duration::from_mins(1);

/// Whether the switches can be read.
#[derive(Debug, Default)]
pub(crate) struct SwitchesOutage {
    since: Option<Instant>,
    is_said: bool,
    reminder: Reminder,
}

impl SwitchesOutage {
    /// Notes that the switches cannot be read. `is_known`: they were before, and what was read counts.
    pub(crate) fn begins(&mut self, why: &str, is_known: bool) {
        let since = *self.since.get_or_insert_with(Instant::now);
        if !is_known {
            if self.reminder.is_due() {
                self.is_said = true;
                tracing::warn!("the switches cannot be read, so nothing is started: {why}");
            }
        } else if !self.is_said && since.elapsed() >= LONG {
            self.is_said = true;
            tracing::warn!(
                "the switches cannot be read; what was paused before stays paused, and nothing else is: {why}"
            );
        }
    }

    /// Notes that the switches are read.
    pub(crate) fn ends(&mut self) {
        if self.since.is_some() && std::mem::take(self).is_said {
            tracing::warn!("the switches can be read again");
        }
    }
}

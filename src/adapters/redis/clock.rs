//! Redis's clock, which each answer of a script shows, beside that of this machine.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use jiff::{SignedDuration, Timestamp};

use crate::{adapters::clock::SystemClock, domain::time, ports::Clock};

/// The last reading of Redis's clock. The time since then is measured by the monotonic clock, which nobody sets.
#[derive(Debug, Default)]
pub(super) struct LastReading(Mutex<Option<Reading>>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    time: Timestamp,
    asked: Instant,
    answered: Instant,
}

impl LastReading {
    /// Notes the time, in us since 1970, in the answer to a call that began at `asked`.
    pub(super) fn set(&self, asked: Instant, micros: i64) {
        let Ok(time) = Timestamp::from_microsecond(micros) else { return };
        let reading = Reading { time, asked, answered: Instant::now() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
    }
}

/// The clock of this machine, and how far it is ahead of Redis's.
pub(super) struct ComparedClock(pub(super) Arc<LastReading>);

impl Clock for ComparedClock {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    fn ahead(&self) -> Option<SignedDuration> {
        let reading = *self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = reading.map(|Reading { time, asked, answered }| {
            let now = Instant::now();
            time::ahead(self.now(), time, now - asked, now - answered)
        });
        Some(ahead.unwrap_or_default())
    }

    fn is_compared(&self) -> bool {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// A machine whose clock is wrong, as its worker has reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedClock {
    /// The name of the machine.
    pub machine: String,
    /// How far its clock is ahead of Redis's; a negative time if it is behind.
    pub ahead: SignedDuration,
}

impl ReportedClock {
    pub(super) fn text(&self) -> String {
        format!("{} {}", self.ahead.as_millis(), self.machine)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (millis, machine) = text.split_once(' ')?;
        Some(Self { machine: machine.to_owned(), ahead: SignedDuration::from_millis(millis.parse().ok()?) })
    }

    /// Returns the report of this machine.
    #[must_use]
    pub fn here(ahead: SignedDuration) -> Self {
        Self { machine: rustix::system::uname().nodename().to_string_lossy().into_owned(), ahead }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_again() {
        let report = ReportedClock { machine: "pod 7".to_owned(), ahead: SignedDuration::from_secs(-86_400) };
        assert_eq!(ReportedClock::parse(&report.text()), Some(report));
        assert_eq!(ReportedClock::parse("soon pod"), None);
    }
}

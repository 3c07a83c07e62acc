//! Computes the instants of a schedule: a cron expression in a time zone, or a fixed interval.
//!
//! Pure: an instant follows from the calendar and from the instant before it, so all workers compute the same slots.
//!
//! # Daylight saving
//!
//! A cron expression describes the face of a clock on the wall. A calendar runs **when the clock shows a time of the
//! expression for the first time, or skips it**:
//!
//! - The clock jumps from 02:00 to 03:00: a run at 02:30 happens at the jump, when the clock shows 03:00. It happens
//!   at the first instant that exists, not 30 minutes later, so that what was due before 03:00 does not run after
//!   what is due at 03:00. All times of one gap share this instant, and so does a run at 03:00: it is one run.
//! - The clock jumps from 03:00 back to 02:00: a run at 02:30 happens the first time. The second time that the clock
//!   shows 02:30, nothing runs, also for `*/15 * * * *`. A schedule that must keep its pace is an interval, or has the
//!   time zone UTC.
//!
//! In other words, each local time is one instant, and a later local time is never an earlier instant. Both searches
//! below rely on this order.

mod cron;
mod field;
#[cfg(test)]
mod tests;
mod zone;

use std::{fmt, time::Duration};

use jiff::{
    Timestamp,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone},
};

use self::cron::Cron;
pub use self::{
    field::{CronError, Field},
    zone::UnknownZone,
};
use crate::domain::ttl::{LONGEST, Ttl, say};

/// The shortest interval. A shorter one is the work of a handler that loops.
const SHORTEST: Duration = Duration::from_secs(1);

/// The instants of a schedule.
///
/// Displays as people write it: `0 3 * * 1-5 Europe/Berlin`, or `every 5m`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar(Rule);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Cron { cron: Cron, zone: TimeZone },
    Every(Ttl),
}

/// Why a schedule has no calendar. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CalendarError {
    /// The cron expression is invalid.
    #[error(transparent)]
    Cron(#[from] CronError),
    /// The time zone is unknown.
    #[error(transparent)]
    Zone(#[from] UnknownZone),
    /// The interval is shorter than a second or longer than ten years.
    #[error("every {}: an interval is at least 1s and at most ten years (3650d)", say(*.0))]
    Interval(Duration),
    /// The interval has a fraction of a millisecond.
    #[error("every {0:?}: an interval is whole milliseconds, like 1500ms")]
    Fraction(Duration),
}

impl Calendar {
    /// Returns the calendar of a cron expression, for the clock of an IANA time zone like `Europe/Berlin`.
    ///
    /// # Errors
    /// When the expression is invalid or never matches ([`CalendarError::Cron`]), or the zone is unknown
    /// ([`CalendarError::Zone`]).
    pub fn cron(expression: &str, timezone: &str) -> Result<Self, CalendarError> {
        Ok(Self(Rule::Cron { cron: expression.parse()?, zone: zone::find(timezone)? }))
    }

    /// Returns the calendar of an interval. Its instants are the multiples of the interval since
    /// 1970-01-01T00:00:00Z, so they depend on no first run.
    ///
    /// # Errors
    /// When the interval is shorter than a second, longer than ten years ([`CalendarError::Interval`]), or not whole
    /// milliseconds ([`CalendarError::Fraction`]).
    pub fn every(interval: Duration) -> Result<Self, CalendarError> {
        if !(SHORTEST..=LONGEST).contains(&interval) {
            return Err(CalendarError::Interval(interval));
        }
        Ttl::new(interval).map(|ttl| Self(Rule::Every(ttl))).map_err(|_| CalendarError::Fraction(interval))
    }

    /// Returns the cron expression, with one space between its fields; `None` for an interval.
    #[must_use]
    pub fn expression(&self) -> Option<&str> {
        match &self.0 {
            Rule::Cron { cron, .. } => Some(cron.as_str()),
            Rule::Every(_) => None,
        }
    }

    /// Returns the interval; `None` for a cron expression.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        match &self.0 {
            Rule::Cron { .. } => None,
            Rule::Every(interval) => Some(interval.as_duration()),
        }
    }

    /// Returns the time zone of the cron expression; UTC for an interval.
    #[must_use]
    pub fn zone(&self) -> TimeZone {
        match &self.0 {
            Rule::Cron { zone, .. } => zone.clone(),
            Rule::Every(_) => TimeZone::UTC,
        }
    }

    /// Returns the name of the time zone, as the IANA database spells it.
    #[must_use]
    pub fn zone_name(&self) -> &str {
        match &self.0 {
            Rule::Cron { zone, .. } => zone::name_of(zone),
            Rule::Every(_) => "UTC",
        }
    }

    /// Returns the first instant after this one; `None` if it would be later than the last timestamp, in the year 9999.
    #[must_use]
    pub fn next_after(&self, instant: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Rule::Cron { cron, zone } => {
                // All local times before `from` are at or before the instant.
                let from = match repeated_until(zone, instant) {
                    Some(end) => end,
                    None => whole_second(zone.to_datetime(instant)).checked_add(SHORTEST).ok()?,
                };
                instant_of(zone, cron.first_from(from)?)
            }
            Rule::Every(interval) => multiple(*interval, index(*interval, instant) + 1),
        }
    }

    /// Returns the last instant that is at or before `now` and later than `after`. Its cost does not depend on how many
    /// instants are between the two.
    #[must_use]
    pub fn last_at_or_before(&self, now: Timestamp, after: Timestamp) -> Option<Timestamp> {
        let last = match &self.0 {
            Rule::Cron { cron, zone } => {
                // All local times at or before `to` are at or before `now`, and no other.
                let to = match repeated_until(zone, now) {
                    Some(end) => end.checked_sub(SHORTEST).ok()?,
                    None => whole_second(zone.to_datetime(now)),
                };
                instant_of(zone, cron.last_to(to)?)
            }
            Rule::Every(interval) => multiple(*interval, index(*interval, now)),
        };
        last.filter(|instant| *instant > after)
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Rule::Cron { cron, zone } => write!(f, "{} {}", cron.as_str(), zone::name_of(zone)),
            Rule::Every(interval) => write!(f, "every {interval}"),
        }
    }
}

/// Returns the one instant of a local time: the first if the time exists twice, and the end of the gap if it does not
/// exist. `None` beyond the last timestamp.
fn instant_of(zone: &TimeZone, local: DateTime) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(local).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok(),
        // Read with the offset after the gap, a local time in the gap is an instant before it.
        AmbiguousOffset::Gap { after, .. } => {
            zone.following(after.to_timestamp(local).ok()?).next().map(|gap| gap.timestamp())
        }
    }
}

/// If the clock shows a local time for the second time at this instant, returns the local time at which the repetition
/// ends.
fn repeated_until(zone: &TimeZone, instant: Timestamp) -> Option<DateTime> {
    let AmbiguousOffset::Fold { before, after } = zone.to_ambiguous_timestamp(zone.to_datetime(instant)).offset()
    else {
        return None;
    };
    if zone.to_offset(instant) != after {
        return None;
    }
    let next = instant.checked_add(Duration::from_nanos(1)).ok()?;
    zone.preceding(next).next().map(|fold| before.to_datetime(fold.timestamp()))
}

fn whole_second(local: DateTime) -> DateTime {
    local.with().subsec_nanosecond(0).build().unwrap_or(local)
}

/// Returns the number of whole intervals between 1970 and this instant.
fn index(interval: Ttl, instant: Timestamp) -> i128 {
    instant.as_nanosecond().div_euclid(nanoseconds(interval))
}

fn multiple(interval: Ttl, index: i128) -> Option<Timestamp> {
    Timestamp::from_nanosecond(index.checked_mul(nanoseconds(interval))?).ok()
}

fn nanoseconds(interval: Ttl) -> i128 {
    i128::from(interval.as_millis()) * 1_000_000
}

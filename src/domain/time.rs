//! Sums, differences and texts of times.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Unit};

/// From now until then; nothing when then is past.
#[must_use]
pub fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO)
}

/// This much later, if that is a time that an event can have.
#[must_use]
pub fn due(time: Timestamp, by: Duration) -> Option<Timestamp> {
    time.checked_add(SignedDuration::try_from(by).ok()?).ok()
}

/// This much later, or the end of time.
#[must_use]
pub fn later(time: Timestamp, by: Duration) -> Timestamp {
    due(time, by).unwrap_or(Timestamp::MAX)
}

/// A time rounded up to the next whole millisecond, as the wire carries it: never earlier than what was asked for.
#[must_use]
pub fn ceil_millis(time: Timestamp) -> Timestamp {
    let round = jiff::TimestampRound::new().smallest(Unit::Millisecond).mode(jiff::RoundMode::Ceil);
    time.round(round).unwrap_or(time)
}

/// A time as it stands in a header: RFC 3339, milliseconds, UTC.
#[must_use]
pub fn millis_text(time: Timestamp) -> String {
    format!("{time:.3}")
}

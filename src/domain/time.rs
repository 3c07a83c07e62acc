//! Arithmetic with timestamps, and their text in headers.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Unit};

/// Returns the time from `now` until `then`, and zero if `then` is past.
#[must_use]
pub fn until(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO)
}

/// Returns `time + by`, or `None` if the sum is beyond the last [`Timestamp`].
#[must_use]
pub fn due(time: Timestamp, by: Duration) -> Option<Timestamp> {
    time.checked_add(SignedDuration::try_from(by).ok()?).ok()
}

/// Returns `time + by`, at most [`Timestamp::MAX`].
#[must_use]
pub fn later(time: Timestamp, by: Duration) -> Timestamp {
    due(time, by).unwrap_or(Timestamp::MAX)
}

/// Returns `time - by`, at least [`Timestamp::MIN`].
#[must_use]
pub fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).ok();
    by.and_then(|by| time.checked_sub(by).ok()).unwrap_or(Timestamp::MIN)
}

/// Rounds a time up to a whole millisecond, the precision of the headers. Rounding up never makes an event early.
#[must_use]
pub fn ceil_millis(time: Timestamp) -> Timestamp {
    let round = jiff::TimestampRound::new().smallest(Unit::Millisecond).mode(jiff::RoundMode::Ceil);
    time.round(round).unwrap_or(time)
}

/// Formats a time for a header: RFC 3339, milliseconds, UTC.
#[must_use]
pub fn millis_text(time: Timestamp) -> String {
    format!("{time:.3}")
}

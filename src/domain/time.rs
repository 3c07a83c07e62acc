//! Arithmetic with timestamps, their text in headers, and the clock of a machine beside Redis's.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp, Unit};

use super::ttl::roughly;

/// The most by which the clock of a machine may differ from Redis's. A machine whose clock differs by more says so, and follows
/// Redis's clock.
pub const TOLERANCE: Duration = Duration::from_secs(5);

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

/// Returns how far a clock that shows `own` is ahead of Redis's at least, and a negative time if it is behind. Redis has answered with its
/// `time` to a call that began `asked` ago and ended `answered` ago. It has read its clock in between, so a slow call makes no clock
/// wrong.
#[must_use]
pub fn ahead(own: Timestamp, time: Timestamp, asked: Duration, answered: Duration) -> SignedDuration {
    let own_since = own.duration_since(time);
    let [asked, answered] = [asked, answered].map(|ago| SignedDuration::try_from(ago).unwrap_or(SignedDuration::MAX));
    own_since.saturating_sub(own_since.clamp(answered, asked.max(answered)))
}

/// Returns whether a clock that is so far ahead, or behind, is wrong.
#[must_use]
pub fn is_wrong(ahead: SignedDuration) -> bool {
    ahead.unsigned_abs() > TOLERANCE
}

/// Says how far a clock is ahead or behind, like `30d ahead of` or `1m 30s behind`.
#[must_use]
pub fn words(ahead: SignedDuration) -> String {
    let by = ahead.unsigned_abs();
    let unit = match by.as_secs() {
        86_400.. => 3_600,
        3_600.. => 60,
        _ => 1,
    };
    let rounded = Duration::from_secs((by.as_secs() + unit / 2) / unit * unit);
    format!("{} {}", roughly(rounded), if ahead.is_negative() { "behind" } else { "ahead of" })
}

/// Returns the time by Redis's clock, or by the own one if Redis has not answered.
#[must_use]
pub fn of_redis(own: Timestamp, ahead: Option<SignedDuration>) -> Timestamp {
    ahead.and_then(|ahead| own.checked_sub(ahead).ok()).unwrap_or(own)
}

/// Returns the time that all machines share: that of the own clock, or that of Redis if the own clock is wrong.
#[must_use]
pub fn shared(own: Timestamp, ahead: Option<SignedDuration>) -> Timestamp {
    match ahead {
        Some(ahead) if is_wrong(ahead) => of_redis(own, Some(ahead)),
        _ => own,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_780_000_000 + second).expect("a time")
    }

    /// Redis has shown second 0. The call began 10 s ago and ended 8 s ago, so it is second 8 to 10 there now.
    #[rstest]
    #[case::behind_by_a_day(-86_400, -86_408)]
    #[case::behind(2, -6)]
    #[case::earliest(8, 0)]
    #[case::in_between(9, 0)]
    #[case::latest(10, 0)]
    #[case::ahead(17, 7)]
    #[case::ahead_by_a_month(2_592_000, 2_591_990)]
    fn a_clock_is_wrong_as_far_as_a_slow_call_does_not_explain_it(#[case] own: i64, #[case] seconds: i64) {
        let ahead = ahead(at(own), at(0), Duration::from_secs(10), Duration::from_secs(8));
        assert_eq!(ahead, SignedDuration::from_secs(seconds));
        assert_eq!(of_redis(at(own), Some(ahead)), at(own - seconds));
        let expected = if seconds.abs() > 5 { own - seconds } else { own };
        assert_eq!(shared(at(own), Some(ahead)), at(expected));
    }

    #[rstest]
    #[case(7, "7s ahead of")]
    #[case(-90, "1m 30s behind")]
    #[case(2_592_003, "30d ahead of")]
    #[case(-90_010, "1d 1h behind")]
    fn a_difference_is_said_in_few_words(#[case] seconds: i64, #[case] expected: &str) {
        assert_eq!(words(SignedDuration::from_secs(seconds)), expected);
    }

    #[test]
    fn without_redis_there_is_no_other_clock() {
        assert_eq!(shared(at(7), None), at(7));
        assert_eq!(shared(Timestamp::MAX, Some(SignedDuration::MIN)), Timestamp::MAX);
    }
}

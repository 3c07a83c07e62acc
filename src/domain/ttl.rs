//! A time to live as RabbitMQ takes it: whole milliseconds, part of the name of the queue that has it.

use std::{fmt, str::FromStr, time::Duration};

use jiff::{Span, SpanRelativeTo, Timestamp, fmt::temporal::Pieces};

/// RabbitMQ refuses a TTL above ten years (measured: 315,360,000,000 ms is the largest it takes).
pub const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

/// A message TTL: at least one millisecond, at most ten years.
///
/// It is written in the largest unit that divides it exactly, so that one TTL has one name:
///
/// ```
/// use hatchery::Ttl;
/// assert_eq!("60s".parse::<Ttl>()?.to_string(), "1m");
/// assert_eq!("90s".parse::<Ttl>()?.to_string(), "90s");
/// # Ok::<(), hatchery::TtlError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u64);

/// Why a text or a duration is not a TTL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TtlError {
    /// Not a duration at all.
    #[error("`{0}` is not a duration; write a number and a unit, like 250ms, 90s, 5m, 1h or 30d")]
    NotADuration(String),
    /// Zero, negative, or finer than a millisecond.
    #[error("{0} is too short; the shortest TTL is 1ms, in whole milliseconds")]
    TooShort(String),
    /// Above what RabbitMQ takes.
    #[error("{0} is too long; RabbitMQ's longest TTL is ten years (3650d)")]
    TooLong(String),
}

impl Ttl {
    /// The TTL of this duration, which must be whole milliseconds.
    ///
    /// # Errors
    /// When it is 0, has a fraction of a millisecond, or is above ten years.
    pub fn new(duration: Duration) -> Result<Self, TtlError> {
        let text = || format!("{duration:?}");
        if duration.is_zero() || !duration.subsec_nanos().is_multiple_of(1_000_000) {
            return Err(TtlError::TooShort(text()));
        }
        if duration > LONGEST {
            return Err(TtlError::TooLong(text()));
        }
        u64::try_from(duration.as_millis()).map(Self).map_err(|_| TtlError::TooLong(text()))
    }

    /// The TTL of this many milliseconds, for constants: at least one, at most ten years.
    pub(crate) const fn from_millis(millis: u64) -> Self {
        assert!(millis > 0 && millis as u128 <= LONGEST.as_millis(), "a TTL that RabbitMQ takes");
        Self(millis)
    }

    /// In milliseconds, as the queue argument `x-message-ttl` takes it.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// As a duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
        match UNITS.into_iter().find(|(unit, _)| self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}ms", self.0),
        }
    }
}

impl FromStr for Ttl {
    type Err = TtlError;

    fn from_str(text: &str) -> Result<Self, TtlError> {
        Self::new(parse_duration(text)?).map_err(|e| match e {
            TtlError::TooShort(_) => TtlError::TooShort(format!("`{text}`")),
            TtlError::TooLong(_) => TtlError::TooLong(format!("`{text}`")),
            other @ TtlError::NotADuration(_) => other,
        })
    }
}

/// A duration as people write it in the file and on the command line: `250ms`, `90s`, `1h 30m`, `365d`; a day is 24 hours.
///
/// # Errors
/// When the text is no duration, or a negative one.
pub fn parse_duration(text: &str) -> Result<Duration, TtlError> {
    let span: Span = text.trim().parse().map_err(|_| TtlError::NotADuration(text.to_owned()))?;
    let signed =
        span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(|_| TtlError::NotADuration(text.to_owned()))?;
    Duration::try_from(signed).map_err(|_| TtlError::TooShort(format!("`{text}`")))
}

/// A text that is no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time; write it like 2026-06-01T09:00:00Z or 2026-06-01T09:00:00+02:00")]
pub struct TimeError(String);

/// A time as RFC 3339 writes it. The last days of the year 9999, which mean "for ever" in many files and are more than a
/// [`Timestamp`] holds, are its end.
///
/// # Errors
/// When it is none, or has no offset from UTC.
pub fn parse_time(text: &str) -> Result<Timestamp, TimeError> {
    text.trim().parse().or_else(|_| {
        let error = || TimeError(text.to_owned());
        let pieces = Pieces::parse(text.trim()).map_err(|_| error())?;
        let forever = pieces.date().year() == 9999 && pieces.time().is_some() && pieces.offset().is_some();
        if forever { Ok(Timestamp::MAX) } else { Err(error()) }
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("250ms", "250ms")]
    #[case("1000ms", "1s")]
    #[case("60s", "1m")]
    #[case("90s", "90s")]
    #[case("1h 30m", "90m")]
    #[case("24h", "1d")]
    #[case("3650d", "3650d")]
    fn one_ttl_has_one_name(#[case] written: &str, #[case] name: &str) {
        assert_eq!(written.parse::<Ttl>().expect("valid").to_string(), name);
    }

    #[rstest]
    #[case("0s", "too short")]
    #[case("-5s", "too short")]
    #[case("100us", "too short")]
    #[case("1500us", "too short")]
    #[case("3651d", "too long")]
    #[case("5", "not a duration")]
    #[case("", "not a duration")]
    #[case("five minutes", "not a duration")]
    #[case("1month", "not a duration")]
    fn what_rabbitmq_would_refuse_is_refused(#[case] written: &str, #[case] why: &str) {
        let error = written.parse::<Ttl>().expect_err("invalid").to_string();
        assert!(error.contains(why), "{error}");
    }

    #[rstest]
    #[case("2026-06-01T09:00:00Z", Some("2026-06-01T09:00:00Z"))]
    #[case("2026-06-01T09:00:00+02:00", Some("2026-06-01T07:00:00Z"))]
    #[case("9999-12-31T23:59:59Z", Some("9999-12-30T22:00:00.999999999Z"))]
    #[case("2026-06-01T09:00:00", None)]
    #[case("9999-12-31", None)]
    #[case("tomorrow", None)]
    fn a_time_has_an_offset_and_an_end(#[case] written: &str, #[case] expected: Option<&str>) {
        let expected = expected.map(|text| text.parse::<Timestamp>().expect("a time"));
        assert_eq!(parse_time(written).ok(), expected);
    }
}

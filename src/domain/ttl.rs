//! Parses and formats TTLs, durations and times.
//!
//! A TTL is whole milliseconds, as RabbitMQ takes it, and part of its queue's name. So one TTL must have one name.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, fmt::temporal::Pieces};

/// RabbitMQ refuses a TTL above ten years (measured: 315,360,000,000 ms is the largest it takes).
pub const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

/// A message TTL: whole milliseconds, at least one, at most ten years.
///
/// A TTL is written in the largest unit that divides it exactly, so that one TTL has one name:
///
/// ```
/// use hatchery::Ttl;
/// assert_eq!("60s".parse::<Ttl>()?.to_string(), "1m");
/// assert_eq!("90s".parse::<Ttl>()?.to_string(), "90s");
/// # Ok::<(), hatchery::TtlError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u64);

/// Why a text or a duration is not a TTL, or a text is not a duration. The message contains the text.
///
/// ```
/// use hatchery::{Ttl, TtlError, parse_duration};
///
/// assert!(matches!("0s".parse::<Ttl>(), Err(TtlError::TooShort(_))));
/// assert!(matches!("11000d".parse::<Ttl>(), Err(TtlError::TooLong(_))));
/// let error = parse_duration("5").expect_err("of what?");
/// assert!(error.to_string().starts_with("`5` is not a duration; write a number and a unit, like 250ms"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TtlError {
    /// The text is not a duration.
    #[error("`{0}` is not a duration; write a number and a unit, like 250ms, 90s, 5m, 1h or 30d")]
    NotADuration(String),
    /// The TTL is zero, negative, or not whole milliseconds.
    #[error("{0} is no TTL; write at least 1ms, in whole milliseconds")]
    TooShort(String),
    /// The duration is negative.
    #[error("`{0}` is negative; write how long from now, like 5s")]
    Negative(String),
    /// The duration is longer than a [`SignedDuration`] can hold.
    #[error("`{0}` is too long a duration")]
    Endless(String),
    /// The TTL is above RabbitMQ's limit of ten years.
    #[error("{0} is too long; RabbitMQ's longest TTL is ten years (3650d)")]
    TooLong(String),
}

impl Ttl {
    /// Returns the TTL of this duration, which must be whole milliseconds.
    ///
    /// # Errors
    /// When the duration is 0 or has a fraction of a millisecond ([`TtlError::TooShort`]), or is above ten years
    /// ([`TtlError::TooLong`]).
    ///
    /// ```
    /// use std::time::Duration;
    /// use hatchery::Ttl;
    ///
    /// assert_eq!(Ttl::new(Duration::from_mins(90))?.to_string(), "90m");
    /// assert!(Ttl::new(Duration::from_micros(1_500)).is_err());
    /// # Ok::<(), hatchery::TtlError>(())
    /// ```
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

    /// Returns the TTL of this many milliseconds, for constants. Panics below one and above ten years.
    pub(crate) const fn from_millis(millis: u64) -> Self {
        assert!(millis > 0 && millis as u128 <= LONGEST.as_millis(), "a TTL that RabbitMQ takes");
        Self(millis)
    }

    /// Returns the TTL in milliseconds, as the queue argument `x-message-ttl` takes it.
    ///
    /// ```
    /// assert_eq!("1m 30s".parse::<hatchery::Ttl>()?.as_millis(), 90_000);
    /// # Ok::<(), hatchery::TtlError>(())
    /// ```
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the TTL as a duration.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// assert_eq!("5m".parse::<hatchery::Ttl>()?.as_duration(), Duration::from_secs(300));
    /// # Ok::<(), hatchery::TtlError>(())
    /// ```
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
        let duration = parse_duration(text).map_err(|error| match error {
            TtlError::Negative(_) => TtlError::TooShort(format!("`{text}`")),
            TtlError::Endless(_) => TtlError::TooLong(format!("`{text}`")),
            other => other,
        })?;
        Self::new(duration).map_err(|e| match e {
            TtlError::TooShort(_) => TtlError::TooShort(format!("`{text}`")),
            TtlError::TooLong(_) => TtlError::TooLong(format!("`{text}`")),
            other => other,
        })
    }
}

/// Parses a duration as the file and the command line have it: `250ms`, `90s`, `1h 30m`, `365d`.
///
/// A day is 24 hours, and a week (`w`) is seven days. Months and years are refused, because their lengths differ.
///
/// # Errors
/// When the text is not a duration ([`TtlError::NotADuration`]), is negative ([`TtlError::Negative`]), or is too long
/// to be represented ([`TtlError::Endless`]).
///
/// ```
/// use std::time::Duration;
/// use hatchery::parse_duration;
///
/// assert_eq!(parse_duration("1h 30m")?, Duration::from_mins(90));
/// assert_eq!(parse_duration("1w 1d")?, Duration::from_hours(8 * 24));
/// assert!(parse_duration("-5s").is_err());
/// # Ok::<(), hatchery::TtlError>(())
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, TtlError> {
    // With each number replaced by 1, a text shows that a number is too large, or that a zero hides months or years.
    let digits = |c: char| c.is_ascii_digit();
    let ones = text.split_inclusive(|c| !digits(c)).map(|part| match part.trim_start_matches(digits) {
        rest if rest.len() < part.len() => format!("1{rest}"),
        rest => rest.to_owned(),
    });
    let ones = ones.collect::<String>().trim().parse::<Span>().ok();
    let has_months = |span: &Span| span.get_months() != 0 || span.get_years() != 0;
    match text.trim().parse().ok().and_then(length) {
        Some(signed) if !ones.as_ref().is_some_and(has_months) => {
            Duration::try_from(signed).map_err(|_| TtlError::Negative(text.trim().to_owned()))
        }
        None if ones.and_then(length).is_some() => Err(TtlError::Endless(text.to_owned())),
        _ => Err(TtlError::NotADuration(text.to_owned())),
    }
}

fn length(span: Span) -> Option<SignedDuration> {
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()
}

/// Formats a duration to the millisecond, for people: `26m 25s`.
#[must_use]
pub fn say(duration: Duration) -> String {
    const UNITS: [(u128, &str); 5] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let mut rest = duration.as_millis();
    let mut parts = Vec::new();
    for (unit, name) in UNITS {
        if rest >= unit {
            parts.push(format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// Formats a duration for a log, with as many digits as people need: `437ms`, `2.4s`, `26m 25s`.
#[must_use]
pub fn roughly(duration: Duration) -> String {
    match duration.as_millis() {
        1_000..60_000 if duration.subsec_millis() > 0 => format!("{:.1}s", duration.as_secs_f64()),
        1_000.. => say(Duration::from_secs(duration.as_secs())),
        millis => format!("{millis}ms"),
    }
}

/// Why a text is not a time that an event can have. The message contains the text.
///
/// ```
/// use hatchery::{TimeError, parse_time};
///
/// // Nine o'clock where?
/// assert!(matches!(parse_time("2026-06-01T09:00:00"), Err(TimeError::NotATime(_))));
/// let error = parse_time("9999-12-31T23:59:59Z").expect_err("too late");
/// assert!(error.to_string().ends_with("an event can have is 9999-12-30T22:00:00Z"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimeError {
    /// The text is not a time.
    #[error("`{0}` is not a time; write it like 2026-06-01T09:00:00Z or 2026-06-01T09:00:00+02:00")]
    NotATime(String),
    /// The time is later than any that an event can have.
    #[error("`{0}` is too late; the last time that an event can have is 9999-12-30T22:00:00Z")]
    TooLate(String),
}

/// Parses a time in RFC 3339.
///
/// A fraction finer than a nanosecond is rounded up, and a leap second becomes the second after it, so that no event is
/// early.
///
/// # Errors
/// When the text is not a time, or has no offset from UTC ([`TimeError::NotATime`]); or when the time is later than
/// 9999-12-30T22:00:00Z, the latest that a `Timestamp` holds ([`TimeError::TooLate`]).
///
/// ```
/// use hatchery::parse_time;
///
/// let nine = parse_time("2026-06-01T09:00:00+02:00")?;
/// assert_eq!(nine, parse_time("2026-06-01T07:00:00Z")?);
/// assert_eq!(parse_time("2016-12-31T23:59:60Z")?, parse_time("2017-01-01T00:00:00Z")?);
/// # Ok::<(), hatchery::TimeError>(())
/// ```
pub fn parse_time(text: &str) -> Result<Timestamp, TimeError> {
    let too_late = || TimeError::TooLate(text.to_owned());
    let (short, more) = whole_nanoseconds(text.trim());
    let time: Timestamp = short.parse().map_err(|_| match Pieces::parse(&*short) {
        Ok(pieces) if pieces.date().year() == 9999 && pieces.time().is_some() && pieces.offset().is_some() => {
            too_late()
        }
        _ => TimeError::NotATime(text.to_owned()),
    })?;
    // jiff reads a leap second as the second before it.
    let leap = if is_leap_second(&short) { Duration::from_secs(1) } else { Duration::ZERO };
    time.checked_add(leap + Duration::from_nanos(more.into())).map_err(|_| too_late())
}

/// Cuts a fraction to nine digits, and tells whether any digit that was cut is not zero.
fn whole_nanoseconds(text: &str) -> (Cow<'_, str>, bool) {
    let Some((before, after)) = text.split_once(['.', ',']) else { return (text.into(), false) };
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    if digits <= 9 {
        return (text.into(), false);
    }
    let more = after[9..digits].bytes().any(|digit| digit != b'0');
    (format!("{before}.{}{}", &after[..9], &after[digits..]).into(), more)
}

fn is_leap_second(text: &str) -> bool {
    let clock = text.split_once(['T', 't', ' ']).map_or("", |(_, clock)| clock);
    let second = if clock.get(2..3) == Some(":") { clock.get(5..8) } else { clock.get(3..6) };
    second.is_some_and(|second| second == ":60" || (!second.contains(':') && second.ends_with("60")))
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
    #[case("0s", "is no TTL")]
    #[case("-5s", "is no TTL")]
    #[case("100us", "is no TTL")]
    #[case("1500us", "is no TTL")]
    #[case("3651d", "too long")]
    #[case("5", "not a duration")]
    #[case("", "not a duration")]
    #[case("five minutes", "not a duration")]
    #[case("1month", "not a duration")]
    #[case("0mo 5m", "not a duration")]
    fn a_ttl_that_rabbitmq_would_refuse_is_refused(#[case] written: &str, #[case] why: &str) {
        let error = written.parse::<Ttl>().expect_err("invalid").to_string();
        assert!(error.contains(why), "{error}");
    }

    #[rstest]
    #[case("-5s", "is negative")]
    #[case("99999999999d", "too long a duration")]
    #[case("1h 99999999999999999999m", "too long a duration")]
    #[case("99999999999", "not a duration")]
    #[case("99999999999parsecs", "not a duration")]
    fn an_error_tells_what_is_wrong_with_a_duration(#[case] written: &str, #[case] why: &str) {
        let error = parse_duration(written).expect_err("invalid").to_string();
        assert!(error.contains(why) && !error.contains("TTL"), "{error}");
    }

    #[test]
    fn a_time_beyond_the_last_one_is_reported_as_too_late() {
        let error = parse_time("9999-12-31T23:59:59Z").expect_err("too late").to_string();
        assert!(
            error.ends_with("is too late; the last time that an event can have is 9999-12-30T22:00:00Z"),
            "{error}"
        );
    }

    #[rstest]
    #[case(437_912, "437ms")]
    #[case(2_437_912, "2.4s")]
    #[case(5_000_000, "5s")]
    #[case(1_585_437_912, "26m 25s")]
    fn a_duration_in_a_log_is_short(#[case] micros: u64, #[case] said: &str) {
        assert_eq!(roughly(Duration::from_micros(micros)), said);
    }

    #[rstest]
    #[case("2026-06-01T09:00:00Z", Some("2026-06-01T09:00:00Z"))]
    #[case("2026-06-01T09:00:00+02:00", Some("2026-06-01T07:00:00Z"))]
    #[case("9999-12-30T22:00:00Z", Some("9999-12-30T22:00:00Z"))]
    #[case("9999-12-31T23:59:59Z", None)]
    #[case("2026-06-01T09:00:00.1234567890Z", Some("2026-06-01T09:00:00.123456789Z"))]
    #[case("2026-06-01T09:00:00.12345678900001Z", Some("2026-06-01T09:00:00.12345679Z"))]
    #[case("2026-06-01T09:00:00.9999999999+02:00", Some("2026-06-01T07:00:01Z"))]
    #[case("2016-12-31T23:59:60Z", Some("2017-01-01T00:00:00Z"))]
    #[case("2016-12-31t23:59:60.5z", Some("2017-01-01T00:00:00.5Z"))]
    #[case("2016-12-31T23:59:59+01:00", Some("2016-12-31T22:59:59Z"))]
    #[case("2026-06-01T09:00:00", None)]
    #[case("9999-12-31", None)]
    #[case("tomorrow", None)]
    fn a_time_has_an_offset_and_an_end(#[case] written: &str, #[case] expected: Option<&str>) {
        let expected = expected.map(|text| text.parse::<Timestamp>().expect("a time"));
        assert_eq!(parse_time(written).ok(), expected);
    }
}

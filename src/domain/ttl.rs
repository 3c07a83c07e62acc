//! A time to live as RabbitMQ takes it: whole milliseconds, part of the name of the queue that has it.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, fmt::temporal::Pieces};

/// RabbitMQ refuses a TTL above ten years (measured: 315,360,000,000 ms is the largest it takes).
pub const LONGEST: Duration = Duration::from_hours(10 * 365 * 24);

/// A message TTL: whole milliseconds, at least one, at most ten years.
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

/// Why a text or a duration is not a TTL, or a text not a duration. The text is in the message.
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
    /// Not a duration at all.
    #[error("`{0}` is not a duration; write a number and a unit, like 250ms, 90s, 5m, 1h or 30d")]
    NotADuration(String),
    /// Zero, negative, or finer than a millisecond.
    #[error("{0} is too short; the shortest TTL is 1ms, in whole milliseconds")]
    TooShort(String),
    /// Less than nothing, where a duration was expected.
    #[error("`{0}` is negative; write how long from now, like 5s")]
    Negative(String),
    /// Beyond any duration that can be kept.
    #[error("`{0}` is too long a duration")]
    Endless(String),
    /// Above what RabbitMQ takes.
    #[error("{0} is too long; RabbitMQ's longest TTL is ten years (3650d)")]
    TooLong(String),
}

impl Ttl {
    /// The TTL of this duration, which must be whole milliseconds.
    ///
    /// # Errors
    /// When it is 0 or has a fraction of a millisecond ([`TtlError::TooShort`]), or is above ten years
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

    /// The TTL of this many milliseconds, for constants: at least one, at most ten years.
    pub(crate) const fn from_millis(millis: u64) -> Self {
        assert!(millis > 0 && millis as u128 <= LONGEST.as_millis(), "a TTL that RabbitMQ takes");
        Self(millis)
    }

    /// In milliseconds, as the queue argument `x-message-ttl` takes it.
    ///
    /// ```
    /// assert_eq!("1m 30s".parse::<hatchery::Ttl>()?.as_millis(), 90_000);
    /// # Ok::<(), hatchery::TtlError>(())
    /// ```
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// As a duration.
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

/// A duration as people write it in the file and on the command line: `250ms`, `90s`, `1h 30m`, `365d`.
///
/// A day is 24 hours. Weeks are `w`, and months and years are none, for they differ.
///
/// # Errors
/// When the text is no duration ([`TtlError::NotADuration`]), a negative one ([`TtlError::Negative`]), or one that is
/// longer than all times ([`TtlError::Endless`]).
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
    let Some(signed) = signed(text) else {
        // With other numbers it may be a duration.
        let digits = |c: char| c.is_ascii_digit();
        let ones = text.split_inclusive(|c| !digits(c)).map(|part| match part.trim_start_matches(digits) {
            rest if rest.len() < part.len() => format!("1{rest}"),
            rest => rest.to_owned(),
        });
        let is_one = signed(&ones.collect::<String>()).is_some();
        return Err(if is_one { TtlError::Endless(text.to_owned()) } else { TtlError::NotADuration(text.to_owned()) });
    };
    Duration::try_from(signed).map_err(|_| TtlError::Negative(text.trim().to_owned()))
}

fn signed(text: &str) -> Option<SignedDuration> {
    text.trim().parse::<Span>().ok()?.to_duration(SpanRelativeTo::days_are_24_hours()).ok()
}

/// A duration as people write it: `26m 25s`.
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

/// A duration for a log, which nobody needs to know to the nanosecond: `437ms`, `2.4s`, `26m 25s`.
#[must_use]
pub fn roughly(duration: Duration) -> String {
    match duration.as_millis() {
        1_000..60_000 if duration.subsec_millis() > 0 => format!("{:.1}s", duration.as_secs_f64()),
        1_000.. => say(Duration::from_secs(duration.as_secs())),
        millis => format!("{millis}ms"),
    }
}

/// Why a text is no time that can be kept. The text is in the message.
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
    /// No time at all.
    #[error("`{0}` is not a time; write it like 2026-06-01T09:00:00Z or 2026-06-01T09:00:00+02:00")]
    NotATime(String),
    /// A time that no event can have.
    #[error("`{0}` is too late; the last time that an event can have is 9999-12-30T22:00:00Z")]
    TooLate(String),
}

/// A time as RFC 3339 writes it.
///
/// What is finer than a nanosecond is rounded up, and a leap second is the next one: nothing comes early.
///
/// # Errors
/// When it is none or has no offset from UTC ([`TimeError::NotATime`]), or is one of the last two days of the year
/// 9999, which a `Timestamp` does not hold ([`TimeError::TooLate`]).
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
    // It was read as the second before.
    let leap = if is_leap_second(&short) { Duration::from_secs(1) } else { Duration::ZERO };
    time.checked_add(leap + Duration::from_nanos(more.into())).map_err(|_| too_late())
}

/// The text without more than nine digits of a fraction, and whether what is left out is anything.
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
    #[case("-5s", "is negative")]
    #[case("99999999999d", "too long a duration")]
    #[case("1h 99999999999999999999m", "too long a duration")]
    #[case("99999999999", "not a duration")]
    #[case("99999999999parsecs", "not a duration")]
    fn what_is_wrong_with_a_duration_is_said(#[case] written: &str, #[case] why: &str) {
        let error = parse_duration(written).expect_err("invalid").to_string();
        assert!(error.contains(why) && !error.contains("TTL"), "{error}");
    }

    #[test]
    fn a_time_that_cannot_be_kept_is_said_to_be_one() {
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
    fn a_log_needs_no_nanoseconds(#[case] micros: u64, #[case] said: &str) {
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

//! Reads times and durations from JSON in the notation of the file and the command line.

use std::{str::FromStr, time::Duration};

use hatchery::{NewEvent, TimeError, TtlError, parse_duration, parse_time};
use jiff::{SpanRelativeTo, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;

/// The durations that the description of the API names. Longer words for the units are taken too.
const SPAN: &str =
    "[0-9]{1,5}(ms|s|m( [0-9]{1,5}s)?|h( [0-9]{1,5}m)?( [0-9]{1,5}s)?|d( [0-9]{1,5}h)?( [0-9]{1,5}m)?( [0-9]{1,5}s)?)";

/// A time.
#[derive(Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String", inline, extend("format" = "date-time"))]
pub struct Time(pub Timestamp);

impl TryFrom<String> for Time {
    type Error = TimeError;

    fn try_from(text: String) -> Result<Self, TimeError> {
        parse_time(&text).map(Self)
    }
}

/// When a pause ends by itself, or an event expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String", inline, extend("anyOf" = [{ "format": "date-time" }, { "pattern": format!("^{SPAN}$") }]))]
pub enum Until {
    /// At this time; the end of a pause by Redis's clock.
    At(Timestamp),
    /// This long after the pause began, the event was published, or its reschedule was asked for.
    After(Duration),
}

/// The text is neither a duration nor a time.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither a duration, like 10m, nor a time, like 2026-06-01T09:00:00Z")]
pub struct NotATimeOrDuration(String);

impl FromStr for Until {
    type Err = NotATimeOrDuration;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let after = parse_duration(text).map(Self::After);
        after.or_else(|_| parse_time(text).map(Self::At)).map_err(|_| NotATimeOrDuration(text.to_owned()))
    }
}

impl TryFrom<String> for Until {
    type Error = NotATimeOrDuration;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl Until {
    /// Returns the event that expires then.
    #[must_use]
    pub fn of(self, event: NewEvent) -> NewEvent {
        match self {
            Self::At(time) => event.expires_at(time),
            Self::After(after) => event.expires(after),
        }
    }
}

/// A duration.
#[derive(Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String", inline, extend("pattern" = format!("^{SPAN}$")))]
pub struct Span(pub Duration);

impl TryFrom<String> for Span {
    type Error = TtlError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        parse_duration(&text).map(Self)
    }
}

/// A time, or a duration from now such as `2h ago`.
#[derive(Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String", inline, extend("anyOf" = [{ "format": "date-time" }, { "pattern": format!("^(now|{SPAN}( ago)?)$") }]))]
pub struct Moment(pub Timestamp);

impl TryFrom<String> for Moment {
    type Error = MomentError;

    fn try_from(text: String) -> Result<Self, MomentError> {
        parse_moment(&text).map(Self)
    }
}

/// A text is neither a valid time nor a duration.
#[derive(Debug, thiserror::Error)]
pub enum MomentError {
    /// The text is neither.
    #[error("not a time; write it like 2026-06-01T09:00:00Z, or as a duration from now: 90s, 2h, 1d 12h, 2h ago, now")]
    NotATime,
    /// The time is out of range.
    #[error(transparent)]
    Time(TimeError),
    /// The time is out of range.
    #[error("no event can have that time; the last one is 9999-12-30T22:00:00Z")]
    Beyond,
}

/// Parses a time, or a duration from now.
///
/// # Errors
/// When the text is neither, or no event can have that time.
pub fn parse_moment(text: &str) -> Result<Timestamp, MomentError> {
    let now = Timestamp::now();
    if text.trim() == "now" {
        return Ok(now);
    }
    let from_now = |span: jiff::Span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok();
    match (parse_time(text), text.trim().parse::<jiff::Span>().ok().and_then(from_now)) {
        (Ok(time), _) => Ok(time),
        (Err(_), Some(duration)) => now.checked_add(duration).map_err(|_| MomentError::Beyond),
        (Err(error @ TimeError::TooLate(_)), None) => Err(MomentError::Time(error)),
        (Err(_), None) => Err(MomentError::NotATime),
    }
}

/// Parses a time, or how long ago it was.
///
/// # Errors
/// Says why the text is neither.
pub fn parse_since(text: &str) -> Result<Timestamp, String> {
    match parse_duration(text) {
        Ok(ago) => Timestamp::now().checked_sub(ago).map_err(|error| error.to_string()),
        Err(_) => parse_moment(text).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("2026-06-01T09:00:00Z", None)]
    #[case("now", Some(0))]
    #[case("2h", Some(7_200))]
    #[case("1d 12h", Some(129_600))]
    #[case("2h ago", Some(-7_200))]
    #[case("-90s", Some(-90))]
    fn a_moment_is_a_time_or_a_duration_from_now(#[case] text: &str, #[case] seconds: Option<i64>) {
        let (before, moment, after) = (Timestamp::now(), parse_moment(text).expect("a moment"), Timestamp::now());
        match seconds {
            Some(seconds) => {
                let now = moment - SignedDuration::from_secs(seconds);
                assert!((before..=after).contains(&now), "{moment}");
            }
            None => assert_eq!(moment.to_string(), text),
        }
    }

    #[rstest]
    #[case("tomorrow")]
    #[case("5")]
    #[case("")]
    #[case("9999-12-31T23:59:59Z")]
    #[case("3000000d")]
    fn a_text_that_is_no_moment_is_refused(#[case] text: &str) {
        assert!(parse_moment(text).is_err());
    }
}

//! Reads times and durations from JSON in the notation of the file and the command line.

use std::{str::FromStr, time::Duration};

use hatchery::{NewEvent, TimeError, TtlError, parse_duration, parse_time};
use jiff::Timestamp;
use serde::Deserialize;

/// A time.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub struct Time(pub Timestamp);

impl TryFrom<String> for Time {
    type Error = TimeError;

    fn try_from(text: String) -> Result<Self, TimeError> {
        parse_time(&text).map(Self)
    }
}

/// When an event expires: a time, or how long after the publish.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub enum Expiry {
    /// At this time.
    At(Timestamp),
    /// This long after the publish.
    After(Duration),
}

/// The text is neither a duration nor a time.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither a duration, like 10m, nor a time, like 2026-06-01T09:00:00Z")]
pub struct NotAnExpiry(String);

impl FromStr for Expiry {
    type Err = NotAnExpiry;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let after = parse_duration(text).map(Self::After);
        after.or_else(|_| parse_time(text).map(Self::At)).map_err(|_| NotAnExpiry(text.to_owned()))
    }
}

impl TryFrom<String> for Expiry {
    type Error = NotAnExpiry;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl Expiry {
    /// Returns the event with this expiry.
    #[must_use]
    pub fn of(self, event: NewEvent) -> NewEvent {
        match self {
            Self::At(time) => event.expires_at(time),
            Self::After(after) => event.expires(after),
        }
    }
}

/// A duration.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

impl TryFrom<String> for Span {
    type Error = TtlError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        parse_duration(&text).map(Self)
    }
}

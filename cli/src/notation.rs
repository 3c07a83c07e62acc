//! Reads times and durations from JSON in the notation of the file and the command line.

use std::{str::FromStr, time::Duration};

use hatchery::{NewEvent, TimeError, TtlError, parse_duration, parse_time};
use jiff::Timestamp;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Time(pub(crate) Timestamp);

impl TryFrom<String> for Time {
    type Error = TimeError;

    fn try_from(text: String) -> Result<Self, TimeError> {
        parse_time(&text).map(Self)
    }
}

/// When an event expires: a time, or how long after the publish.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum Expiry {
    At(Timestamp),
    After(Duration),
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither a duration, like 10m, nor a time, like 2026-06-01T09:00:00Z")]
pub(crate) struct NotAnExpiry(String);

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
    pub(crate) fn of(self, event: NewEvent) -> NewEvent {
        match self {
            Self::At(time) => event.expires_at(time),
            Self::After(after) => event.expires(after),
        }
    }
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Span(pub(crate) Duration);

impl TryFrom<String> for Span {
    type Error = TtlError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        parse_duration(&text).map(Self)
    }
}

//! Reads times and durations from JSON in the notation of the file and the command line.

use std::time::Duration;

use hatchery::{TimeError, TtlError, parse_duration, parse_time};
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

#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Span(pub(crate) Duration);

impl TryFrom<String> for Span {
    type Error = TtlError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        parse_duration(&text).map(Self)
    }
}

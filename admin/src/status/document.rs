//! The status as a JSON document, for the command line and the server of the API.

use schemars::JsonSchema;
use serde::Serialize;

use super::summary::Status;

/// The answer of `topology status`.
#[derive(Serialize, JsonSchema)]
pub struct Document<'a> {
    /// The version of this format.
    format_version: u32,
    #[serde(flatten)]
    status: &'a Status,
}

impl<'a> Document<'a> {
    /// Returns the document of a status.
    #[must_use]
    pub const fn of(status: &'a Status) -> Self {
        Self { format_version: 1, status }
    }
}

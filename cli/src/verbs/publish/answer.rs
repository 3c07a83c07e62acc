//! The JSON of `topology publish`.

use hatchery_admin::batch::AnsweredLine;
use schemars::JsonSchema;
use serde::Serialize;

/// The answer of `topology publish`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Answer {
    Event(Published),
    Batch(Account),
}

/// A line with `-o ndjson`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Line {
    Event(Published),
    Batch(AnsweredLine),
}

/// The event was published.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Published {
    /// The event's id.
    pub(super) id: String,
}

/// The result of a batch.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Account {
    /// The number of lines whose events were published.
    pub(super) published: u64,
    /// The number of lines that cancelled or rescheduled events, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) changes: Option<u64>,
    /// The number of lines that were not carried out.
    pub(super) refused: u64,
    /// The number of lines that may or may not have been published, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unanswered: Option<usize>,
    /// The first line that was not read, if the batch was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stopped_before_line: Option<u64>,
}

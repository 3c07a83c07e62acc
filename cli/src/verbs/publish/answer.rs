//! The JSON of `topology publish`.

use std::collections::BTreeMap;

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

/// The result of one line of a batch.
#[derive(Default, Serialize, JsonSchema)]
pub(crate) struct AnsweredLine {
    /// The number of the line, from 1.
    pub(super) line: u64,
    /// The id of the event, if it was published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    /// Of a line that cancels or reschedules: the number of events by result, in the words of `topology events cancel` and `reschedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) results: Option<BTreeMap<&'static str, u64>>,
    /// Of such a line: the ids of the events that were cancelled or rescheduled, as far as Redis knows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ids: Option<Vec<String>>,
    /// Why the line was not carried out, if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

//! The answer to a line of a batch, as JSON.

use std::{borrow::Cow, collections::BTreeMap};

use hatchery::Published;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    change::ChangedEvents,
    under_way::{Done, Refused},
};

/// The result of one line of a batch.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AnsweredLine {
    /// The number of the line, from 1.
    pub line: u64,
    /// The id of the event, if it was published. An answer of the server has it with `error` too: published again under this id the
    /// event is no second one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `true` if Redis gave no version: the event competes with no other event of its reference.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unversioned: bool,
    /// Of an answer of the server: the state of the event that Redis knew by this id before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Cow<'static, str>>,
    /// Of a line that cancels or reschedules: the number of events by result, in the words of `topology events cancel` and `reschedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<BTreeMap<Cow<'static, str>, u64>>,
    /// Of such a line: the ids of the events that were cancelled or rescheduled, as far as Redis knows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Why the line was not carried out, if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl AnsweredLine {
    /// Returns the answer to the line with this number.
    #[must_use]
    pub fn of(line: u64, done: Result<Done, Refused>) -> Self {
        match done {
            Ok(Done::Published(Published { id, unversioned, .. })) => {
                Self { line, id: Some(id), unversioned, ..Self::default() }
            }
            Ok(Done::Changed(ChangedEvents { results, ids, .. })) => {
                Self { line, results: Some(results), ids: Some(ids), ..Self::default() }
            }
            Err(Refused { why, id }) => Self { line, id, error: Some(why), ..Self::default() },
        }
    }
}

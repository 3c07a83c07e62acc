//! The answer of a replay and of a discard, for the command line and the server of the API.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::sweep::Tally;

/// The answer of `topology dead-letter replay` and `discard`.
#[derive(Serialize, JsonSchema)]
pub struct SweptLetters {
    /// The command: `replay` or `discard`.
    pub verb: &'static str,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// The letters of all queues.
    pub letters: Counts,
    /// The letters of each queue; absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<BTreeMap<String, Counts>>,
}

/// The number of letters by what has become of them.
#[derive(Serialize, JsonSchema)]
pub struct Counts {
    /// Letters that were in the queue.
    pub ready: u64,
    /// Letters that were replayed or discarded; absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// Letters that would be replayed or discarded; only in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would_be_done: Option<u64>,
    /// Letters that stay because they are obsolete.
    pub obsolete: u64,
    /// Letters that stay because they are no events.
    pub unreadable: u64,
    /// Letters that stay because they were not selected.
    pub not_selected: u64,
    /// Letters that stay because they could not be read: others hold them, or the broker is slow.
    pub unread: u64,
}

impl Counts {
    /// Returns the numbers of letters that stay.
    #[must_use]
    pub const fn left(tally: Tally) -> Self {
        let Tally { ready, done: _, obsolete, unreadable, others, unread } = tally;
        Self { ready, done: None, would_be_done: None, obsolete, unreadable, not_selected: others, unread }
    }

    /// Returns the numbers of letters after a replay or a discard.
    #[must_use]
    pub const fn done(tally: Tally) -> Self {
        Self { done: Some(tally.done), ..Self::left(tally) }
    }

    /// Returns the numbers of letters of a dry run.
    #[must_use]
    pub const fn would_be(tally: Tally) -> Self {
        Self { would_be_done: Some(tally.done), ..Self::left(tally) }
    }
}

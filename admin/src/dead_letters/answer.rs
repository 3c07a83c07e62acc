//! The answers of the commands for letters, for the command line and the server of the API.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    sweep::Tally,
    view::{GroupView, QueueView, Whole},
};

/// The letters by the reason of their failure, and the first ones.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct FoundLetters {
    /// The queues that were read.
    pub queues: Vec<QueueView>,
    /// The number of letters.
    pub found: u64,
    /// How many of them are obsolete; `null` if Redis does not tell.
    pub obsolete: Option<u64>,
    /// The reasons, the most frequent first.
    pub groups: Vec<GroupView>,
    /// The first letters, the oldest of each queue first, with the begin of their payloads.
    pub letters: Vec<Whole>,
    /// Whether there are more letters than these.
    pub more: bool,
    /// The letters and facts that were not seen, a sentence each.
    pub warnings: Vec<String>,
}

/// The letters of an id.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct ShownLetters {
    /// The number of letters.
    pub found: usize,
    /// The first letters.
    pub letters: Vec<Whole>,
    /// The letters and facts that were not seen, a sentence each.
    pub warnings: Vec<String>,
}

/// The account of a replay or a discard, or of its dry run.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct DoneLetters {
    #[serde(flatten)]
    pub swept: SweptLetters,
    /// The reasons of the letters that it would act on, the most frequent first; only in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupView>>,
    /// The letters that a discard would remove; only in its dry run. Save the lines, then send their digests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<LetterLine>>,
    /// Whether more letters match than it would act on, or than `lines` has; only in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<bool>,
    /// Why letters were not seen, or were not acted on. Repeat the request for the rest.
    pub warnings: Vec<String>,
}

/// A letter that a discard would remove.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct LetterLine {
    /// The SHA-256 of the line.
    pub digest: String,
    /// The letter as a line that `topology publish --batch` takes. Save the text as it is: a JSON parser may change numbers of the payload.
    pub line: String,
}

/// The answer of `topology dead-letter replay` and `discard`.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct SweptLetters {
    /// The command: `replay` or `discard`.
    pub verb: Cow<'static, str>,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// The letters of all queues.
    pub letters: Counts,
    /// The letters of each queue; absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<BTreeMap<String, Counts>>,
}

/// The number of letters by what has become of them.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
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
    const fn left(tally: Tally) -> Self {
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

impl From<&Counts> for Tally {
    fn from(counts: &Counts) -> Self {
        let &Counts { ready, done, would_be_done, obsolete, unreadable, not_selected, unread } = counts;
        Self {
            ready,
            done: done.or(would_be_done).unwrap_or_default(),
            obsolete,
            unreadable,
            others: not_selected,
            unread,
        }
    }
}

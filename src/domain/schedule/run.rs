//! The newest run of a schedule, as its state has it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The newest event of a schedule that was started. Times are in ms since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScheduledRun {
    /// The event's id.
    pub id: String,
    /// The event's position.
    pub position: i64,
    /// When it was started.
    pub started: i64,
    /// When it will have ended, or been started again, unless it is lost.
    pub until: i64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<i64>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
}

/// How an event of a schedule has ended. The texts say why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum RunOutcome {
    /// The event has run.
    Done,
    /// The event was cancelled while it ran.
    Cancelled,
    /// The event was not run.
    Skipped(String),
    /// The run of the event has failed, and the event was dropped.
    Dropped(String),
    /// The event went to dead-letter.
    DeadLetter(String),
    /// The text of an outcome that another version of hatchery wrote. The text is kept unchanged.
    Other(String),
}

impl fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Skipped(why) => write!(f, "skipped: {why}"),
            Self::Dropped(why) => write!(f, "dropped: {why}"),
            Self::DeadLetter(why) => write!(f, "dead-letter: {why}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl From<String> for RunOutcome {
    fn from(text: String) -> Self {
        match text.split_once(": ") {
            Some(("skipped", why)) => Self::Skipped(why.to_owned()),
            Some(("dropped", why)) => Self::Dropped(why.to_owned()),
            Some(("dead-letter", why)) => Self::DeadLetter(why.to_owned()),
            _ if text == "done" => Self::Done,
            _ if text == "cancelled" => Self::Cancelled,
            _ => Self::Other(text),
        }
    }
}

impl From<RunOutcome> for String {
    fn from(outcome: RunOutcome) -> Self {
        outcome.to_string()
    }
}

//! The answer of a pause and of a resume, for the command line and the server of the API.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NotFollowing, PauseLine, Switched};

/// The answer of a pause or a resume.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct ChangedPauses {
    /// Whether anything was changed.
    pub changed: bool,
    /// The pauses of these names now.
    pub pauses: Vec<PauseLine>,
    /// The pauses that were ended.
    pub ended: Vec<PauseLine>,
    /// The pauses of all that still hold something that was resumed.
    pub held_by: Vec<PauseLine>,
    /// The queues that workers still consume although they are paused.
    pub not_following: Vec<NotFollowing>,
    /// When the next event of each schedule is due that was resumed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub next: BTreeMap<String, Timestamp>,
}

impl From<&Switched> for ChangedPauses {
    fn from(Switched { before, after, held, not_following, next }: &Switched) -> Self {
        Self {
            changed: before != after,
            pauses: after.iter().map(PauseLine::from).collect(),
            ended: before.iter().filter(|pause| !after.contains(pause)).map(PauseLine::from).collect(),
            held_by: held.iter().map(|(_, pause)| PauseLine::from(pause)).collect(),
            not_following: not_following.clone(),
            next: next.iter().map(|(name, due)| (name.to_string(), *due)).collect(),
        }
    }
}

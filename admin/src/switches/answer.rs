//! The answer of a pause and of a resume, for the command line and the server of the API.

use schemars::JsonSchema;
use serde::Serialize;

use super::{NotFollowing, PauseLine, Switched};

/// The answer of a pause or a resume.
#[derive(Serialize, JsonSchema)]
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
}

impl From<&Switched> for ChangedPauses {
    fn from(Switched { before, after, held, not_following, next: _ }: &Switched) -> Self {
        Self {
            changed: before != after,
            pauses: after.iter().map(PauseLine::from).collect(),
            ended: before.iter().filter(|pause| !after.contains(pause)).map(PauseLine::from).collect(),
            held_by: held.iter().map(|(_, pause)| PauseLine::from(pause)).collect(),
            not_following: not_following.clone(),
        }
    }
}

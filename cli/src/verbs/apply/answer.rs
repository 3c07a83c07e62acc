//! The JSON of an apply.

use hatchery_admin::plan::Address;
use schemars::JsonSchema;
use serde::Serialize;

use crate::plan_document::Document;

/// The answer of `topology apply`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Answer {
    Ended(Box<Report>),
    Unfinished(Unfinished),
}

/// An apply that is done, or that was refused before anything was written.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Report {
    /// The plan at the time of the first write.
    #[serde(flatten)]
    pub(super) plan: Document,
    /// Whether the broker is as the file says now.
    pub(super) applied: bool,
    /// The number of messages that were moved.
    pub(super) moved: u64,
    /// The number of objects that were removed.
    pub(super) removed: usize,
    /// Objects that `--prune` had to leave.
    pub(super) not_removed: Vec<NotRemoved>,
    /// How long it took in milliseconds; `null` if nothing was written.
    pub(super) elapsed_ms: Option<u64>,
}

/// An object that stays for now.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NotRemoved {
    #[serde(flatten)]
    pub(super) address: Address,
    /// The cause that keeps the object.
    pub(super) why: String,
}

/// An apply that stopped half-way.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Unfinished {
    /// Always `false`.
    pub(super) applied: bool,
    /// The objects that are left to write, if they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<Vec<String>>,
}

//! The flags `--migrate` and `--prune`, which ask a plan for more than declaring objects.

use hatchery_admin::plan::Plan;
use serde::{Deserialize, Serialize};

/// The changes that happen only if the user asks for them.
#[derive(clap::Args, Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// Replace objects that cannot be changed in place; their events are moved, and none is lost
    #[arg(long)]
    pub(crate) migrate: bool,

    /// Remove owned objects that are no longer in the file, once they are provably empty
    #[arg(long)]
    pub(crate) prune: bool,
}

impl Asked {
    pub(crate) const fn and(self, other: Self) -> Self {
        Self { migrate: self.migrate || other.migrate, prune: self.prune || other.prune }
    }

    pub(crate) fn nothing_to_do(self, plan: &Plan) -> bool {
        plan.in_sync() && !(self.prune && plan.counts().leftover > 0)
    }
}

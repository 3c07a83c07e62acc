//! What a plan is asked for beyond declaring: `--migrate` and `--prune`.

use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// What has to be asked for.
#[derive(clap::Args, Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// Replace what cannot be changed in place; its events are moved, none is lost
    #[arg(long)]
    pub(crate) migrate: bool,

    /// Remove what is owned and no longer in the file, once it is provably empty
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

//! The flags `--migrate` and `--prune`, which ask a plan for more than declaring objects.

use hatchery_admin::Asked;

/// The changes that happen only if the user asks for them.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Flags {
    /// Replace objects that cannot be changed in place; their events are moved, and none is lost
    #[arg(long)]
    migrate: bool,

    /// Remove owned objects that are no longer in the file, once they are provably empty
    #[arg(long)]
    prune: bool,
}

impl From<Flags> for Asked {
    fn from(Flags { migrate, prune }: Flags) -> Self {
        Self { migrate, prune }
    }
}

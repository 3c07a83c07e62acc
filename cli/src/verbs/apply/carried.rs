//! The result of an apply.

use crate::{left_types::LeftTypes, observed::Observed, plan::Plan};

/// What was carried out.
pub(super) struct Carried {
    /// As it was shown.
    pub(super) plan: Plan,
    pub(super) observed: Observed,
    /// Messages that were moved.
    pub(super) moved: u64,
    /// Objects that were removed by pruning.
    pub(super) removed: usize,
    /// Leftovers that pruning had to leave; none where it was not asked for.
    pub(super) left: Option<Vec<String>>,
    /// What Redis knows of types that have left the file.
    pub(super) left_types: LeftTypes,
}

impl Carried {
    pub(super) const fn nothing(plan: Plan, observed: Observed, left_types: LeftTypes) -> Self {
        Self { plan, observed, moved: 0, removed: 0, left: None, left_types }
    }

    /// What was done; nothing where nothing was to be done.
    pub(super) fn summary(&self) -> Option<String> {
        let counts = self.plan.counts();
        let mut parts = vec![format!("{} added, {} changed", counts.add, counts.change)];
        if counts.migrate > 0 {
            parts.push(format!("{} migrated with {}", counts.migrate, messages(self.moved)));
        }
        if self.left.is_some() {
            parts.push(format!("{} removed", self.removed));
        }
        (counts.add + counts.change + counts.migrate > 0 || self.left.is_some()).then(|| parts.join(", "))
    }

    /// What could not go yet.
    pub(super) fn stays(&self) -> Option<String> {
        let left = self.left.as_ref().filter(|left| !left.is_empty())?;
        Some(format!(
            "Not removed, because it is in use, not provably empty, or led to by others: {}. Prune again later.",
            first(left)
        ))
    }
}

fn messages(n: u64) -> String {
    format!("{n} message{}", if n == 1 { "" } else { "s" })
}

/// The first few of what is left.
pub(super) fn first(left: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = left.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match left.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

//! The result of an apply.

use crate::{left_types::LeftTypes, observed::Observed, plan::Plan};

/// The changes that an apply has carried out, and what it had to leave.
pub(super) struct Carried {
    /// The plan at the time of the first write.
    pub(super) plan: Plan,
    pub(super) observed: Observed,
    /// Messages that were moved.
    pub(super) moved: u64,
    /// Objects that were removed by pruning.
    pub(super) removed: usize,
    /// Leftovers that pruning had to leave; `None` without `--prune`.
    pub(super) left: Option<Vec<String>>,
    /// Types that were removed from the file while Redis still knows events of them.
    pub(super) left_types: LeftTypes,
}

impl Carried {
    pub(super) const fn nothing(plan: Plan, observed: Observed, left_types: LeftTypes) -> Self {
        Self { plan, observed, moved: 0, removed: 0, left: None, left_types }
    }

    /// Returns a summary of the changes, or `None` if there were none.
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

    /// Returns a note about the leftovers that could not be removed yet, if there are any.
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

/// Returns the first few names, and the number of the others.
pub(super) fn first(left: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = left.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match left.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

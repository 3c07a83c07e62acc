//! The result of an apply.

use std::time::Duration;

use hatchery_admin::{
    observed::Observed,
    plan::{Address, Plan},
};

use crate::{left_types::LeftTypes, output::GREEN};

/// The width in columns at which a cause gets a line of its own.
const WIDTH: usize = 80;

/// The changes that an apply has carried out, and what it had to leave.
pub(super) struct Carried {
    /// The plan at the time of the first write.
    pub(super) plan: Plan,
    pub(super) observed: Observed,
    /// Messages that were moved.
    pub(super) moved: u64,
    /// Objects that were removed by pruning.
    pub(super) removed: usize,
    /// Leftovers that pruning had to leave, with what keeps each; `None` without `--prune`.
    pub(super) left: Option<Vec<(Address, String)>>,
    /// Types that were removed from the file while Redis still knows events of them.
    pub(super) left_types: LeftTypes,
}

impl Carried {
    pub(super) const fn nothing(plan: Plan, observed: Observed, left_types: LeftTypes) -> Self {
        Self { plan, observed, moved: 0, removed: 0, left: None, left_types }
    }

    /// Returns what was done in this time, or `None` if nothing was.
    pub(super) fn text(&self, elapsed: Duration) -> Option<String> {
        let seconds = elapsed.as_secs_f64();
        self.summary().map(|what| format!("{GREEN}Applied{GREEN:#}: {what}, in {seconds:.1} s.\n"))
    }

    fn summary(&self) -> Option<String> {
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
        let mut causes: Vec<(&str, Vec<&Address>)> = Vec::new();
        for (address, why) in left {
            match causes.iter_mut().find(|(cause, _)| cause == why) {
                Some((_, of)) => of.push(address),
                None => causes.push((why, vec![address])),
            }
        }
        let lines = causes.iter().map(|(why, of)| {
            let more = of.len() - 1;
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            match format!("  {}{more}: {why}", of[0]) {
                line if line.chars().count() <= WIDTH => line,
                _ => format!("  {}{more}:\n    {why}", of[0]),
            }
        });
        Some(format!("Not removed:\n{}\nPrune again later.", lines.collect::<Vec<_>>().join("\n")))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::screens;
    use hatchery_admin::plan::Kind;

    /// The golden screens: `tests/apply/*.txt`. `UPDATE_GOLDEN=1` writes them anew.
    #[test]
    fn leftovers_of_one_cause_are_told_together() {
        let told = |name: &str, why: &str| (Address::new(Kind::Queue, name), why.to_owned());
        let left = vec![
            told("billing.processor.mail", "holds 2 messages, for a worker or a person"),
            told("billing.retry.mail.1s", "its type is still in use: billing.processor.mail holds 2 messages"),
            told("billing.retry.mail.2s", "its type is still in use: billing.processor.mail holds 2 messages"),
        ];
        let carried =
            Carried { left: Some(left), ..Carried::nothing(no_plan(), Observed::default(), LeftTypes::default()) };
        screens("apply/not-removed", |_| carried.stays().expect("a note") + "\n");
        screens("apply/applied", |_| carried.text(Duration::from_millis(2_340)).expect("something was done"));
    }

    fn no_plan() -> Plan {
        Plan { owner: "billing".to_owned(), changes: Vec::new(), migration: Vec::new(), pruning: Vec::new() }
    }
}

//! The summary of an apply in words.

use std::time::Duration;

use hatchery_admin::{Applied, plan::Address, text::count};

use crate::output::GREEN;

/// The width in columns at which a cause gets a line of its own.
const WIDTH: usize = 80;

/// Returns what was done in this time, or `None` if nothing was.
pub(super) fn text(applied: &Applied, elapsed: Duration) -> Option<String> {
    let seconds = elapsed.as_secs_f64();
    summary(applied).map(|what| format!("{GREEN}Applied{GREEN:#}: {what}, in {seconds:.1} s.\n"))
}

fn summary(applied: &Applied) -> Option<String> {
    let counts = applied.plan.counts();
    let mut parts = vec![format!("{} added, {} changed", counts.add, counts.change)];
    if counts.migrate > 0 {
        parts.push(format!("{} migrated with {}", counts.migrate, count(applied.moved, "message")));
    }
    if applied.left.is_some() {
        parts.push(format!("{} removed", applied.removed));
    }
    (counts.add + counts.change + counts.migrate > 0 || applied.left.is_some()).then(|| parts.join(", "))
}

/// Returns a note about the leftovers that could not be removed yet, if there are any.
pub(super) fn stays(applied: &Applied) -> Option<String> {
    let left = applied.left.as_ref().filter(|left| !left.is_empty())?;
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

#[cfg(test)]
mod tests {
    use hatchery_admin::{
        LeftoverTypes,
        live::Observed,
        plan::{Kind, Plan},
    };

    use super::*;
    use crate::golden::screens;

    /// The golden screens: `tests/screens/verbs.txt`. `UPDATE_GOLDEN=1` writes them anew.
    #[test]
    fn leftovers_of_one_cause_are_told_together() {
        let told = |name: &str, why: &str| (Address::new(Kind::Queue, name), why.to_owned());
        let left = vec![
            told("billing.processor.mail", "holds 2 messages, for a worker or a person"),
            told("billing.retry.mail.1s", "its type is still in use: billing.processor.mail holds 2 messages"),
            told("billing.retry.mail.2s", "its type is still in use: billing.processor.mail holds 2 messages"),
        ];
        let applied = Applied {
            plan: no_plan(),
            observed: Observed::default(),
            left_types: LeftoverTypes::default(),
            moved: 0,
            removed: 0,
            left: Some(left),
            schedules: Vec::new(),
            pauses: Vec::new(),
        };
        screens("verbs/apply-not-removed", |_| stays(&applied).expect("a note") + "\n");
        screens("verbs/apply-applied", |_| text(&applied, Duration::from_millis(2_340)).expect("something was done"));
    }

    fn no_plan() -> Plan {
        Plan { owner: "billing".to_owned(), changes: Vec::new(), migration: Vec::new(), pruning: Vec::new() }
    }
}

//! The account at the end of `topology dev`.

use hatchery::{EventType, Summary};
use hatchery_admin::{Status, TypeLine};

/// The counts of a whole session, over all changes of the file.
#[derive(Default)]
pub(super) struct Account {
    pub(super) published: u64,
    /// Events of types that have left the file.
    pub(super) left: u64,
    done: Summary,
}

impl Account {
    /// Adds what a worker has done.
    pub(super) fn add(&mut self, summary: Summary) {
        self.done += summary;
    }

    /// Returns the account. `waiting` counts the messages of a type whose events have no list.
    pub(super) fn text(&self, status: &Status, waiting: impl Fn(&EventType) -> usize) -> String {
        let Summary { done, discarded, retried, dropped, dead_lettered, .. } = self.done;
        let dead: u64 = status.types.iter().filter_map(|line| line.dead).sum();
        let waits = |line: &TypeLine| {
            let listed = line.delayed.map(|delayed| delayed + line.due.unwrap_or(0) + line.retrying.unwrap_or(0));
            let counted = || Some(waiting(&line.name.parse().ok()?) as u64);
            listed.or_else(counted).unwrap_or_default()
        };
        let waiting = self.left + status.types.iter().map(waits).sum::<u64>();
        let lines = [
            ("published", self.published, ""),
            ("succeeded", done + discarded, ""),
            ("failed runs", retried + dropped + dead_lettered, ""),
            ("dead letters", dead, "forgotten now"),
            ("waiting", waiting, "forgotten now"),
        ];
        let line = |(what, count, note): &(&str, u64, &str)| {
            let note = if *count == 0 || note.is_empty() { String::new() } else { format!("   {note}") };
            format!("  {what:<12}  {count:>6}{note}\n")
        };
        format!("The account:\n{}", lines.iter().map(line).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_adds_the_types_up() {
        let mut account = Account { published: 9, left: 5, ..Account::default() };
        let mut summary = Summary::default();
        (summary.done, summary.retried, summary.dead_lettered) = (3, 2, 1);
        account.add(summary);
        account.add(summary);
        let line = |name: &str, delayed| {
            let mut line = TypeLine::default();
            (line.name, line.due, line.delayed) = (name.to_owned(), Some(1), delayed);
            (line.retrying, line.dead) = (Some(2), Some(1));
            line
        };
        let mut status = Status::default();
        status.types = vec![line("mail", Some(4)), line("plain", None)];
        let expected = "\
The account:
  published          9
  succeeded          6
  failed runs        6
  dead letters       2   forgotten now
  waiting           22   forgotten now
";
        assert_eq!(account.text(&status, |_| 10), expected);
    }
}

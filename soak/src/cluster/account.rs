//! Accounts for the events that were published during the faults.

use super::crew::{BURST, CHANGE, ORDERED, REFERENCES, Seen, TYPES, first_number};
use crate::harness::{Account as Times, Changes, Queues, Stage, Table, backwards, grouped};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// Number of published events. All of them were confirmed in the end.
    sent: usize,
    /// Number of events that were published more than once before they were confirmed.
    repeated: usize,
    runs: usize,
    /// Number of events that were not handled, not replaced by a newer change that was handled, and not in a queue.
    lost: usize,
    early: usize,
    twice: usize,
    /// Number of runs of an older change after a newer one of its reference.
    backwards: usize,
    /// Number of runs of the `block` type after an event that the same publisher published later.
    unordered: usize,
    /// Number of changes that got no version from Redis in time.
    unversioned: usize,
    /// Number of messages that are in the queues at the end, if an event was not handled.
    left: usize,
    /// Number of messages in the dead-letter queues and in `unrouted`.
    dead: u64,
}

impl Account {
    /// Takes the account when publishers and workers have stopped. Drains the queues if an event was not handled.
    pub(super) async fn take(seen: &Seen, queues: &Queues, stage: &Stage) -> anyhow::Result<Self> {
        let names = stage.names();
        let mut dead = vec![names.unrouted()];
        for event_type in TYPES {
            dead.push(names.dead_letters(&event_type.parse()?));
        }
        let dead = queues.ready(&dead).await?;
        let mut left = Vec::new();
        if seen.overdue(i64::MAX) > 0 {
            for queue in &queues.all {
                left.extend(queues.drain(queue).await?);
            }
        }
        Ok(Self { dead, ..Self::of(seen, &left) })
    }

    /// Takes the account from the notes, and from the ids of the messages that are left in the queues.
    fn of(seen: &Seen, left: &[String]) -> Self {
        let runs = seen.runs.all();
        let early = runs.iter().filter(|run| run.is_early()).count();
        let mut account = Self { runs: runs.len(), early, left: left.len(), ..Self::default() };
        for event_type in 0..TYPES.len() {
            for publisher in 0..=BURST {
                let sent = seen.sent(event_type, publisher);
                account.sent += sent.len();
                account.repeated += sent.iter().filter(|sent| sent.tries > 1).count();
                account.unversioned += sent.iter().filter(|sent| sent.unversioned).count();
                let first = first_number(event_type, publisher);
                let numbers = first..first + u32::try_from(sent.len()).unwrap_or(u32::MAX);
                let of: Vec<u32> =
                    runs.iter().map(|run| run.number).filter(|number| numbers.contains(number)).collect();
                let times = Times::take(numbers, of.iter().copied());
                if event_type == CHANGE {
                    let unversioned: Vec<bool> = sent.iter().map(|sent| sent.unversioned).collect();
                    let calls: Vec<u32> = of.iter().map(|number| number - first).collect();
                    let changes = Changes::take(REFERENCES, &unversioned, &calls);
                    account.lost += changes.lost;
                    account.backwards += changes.backwards;
                    // A change that was published again is a newer change, which runs too.
                    let once = |number: &u32| sent[(number - first) as usize].tries == 1;
                    account.twice += times.twice.iter().filter(|number| once(number)).count();
                    continue;
                }
                account.twice += times.twice.len();
                account.lost += times.missing.iter().filter(|number| !left.contains(&number.to_string())).count();
                if event_type == ORDERED {
                    account.unordered += backwards(&of);
                }
            }
        }
        account
    }

    pub(super) fn tell(&self, table: &mut Table) {
        table.tell(&["events, all confirmed", &grouped(self.sent), ""]);
        table.tell(&["of those, published more than once", &grouped(self.repeated), ""]);
        table.tell(&["runs", &grouped(self.runs), ""]);
        table.tell(&["changes without a version", &grouped(self.unversioned), ""]);
        for (what, found) in [
            ("lost", self.lost),
            ("early", self.early),
            ("handled twice", self.twice),
            ("block type out of order", self.unordered),
            ("left in a queue", self.left),
        ] {
            table.none(what, found);
        }
        // A change without a version competes with no other, so it may run after a newer one.
        let holds = self.backwards == 0 || self.unversioned > 0;
        let must = if self.unversioned == 0 { "0" } else { "any" };
        table.must(holds, &["older change after a newer", &grouped(self.backwards), must]);
        table.none("in dead-letter and unrouted", self.dead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::crew::NOW;

    /// Returns the notes of one publisher. `tries` has one event each, with how often it was published; `ran` has the
    /// places of the events that ran.
    fn seen(event_type: usize, tries: &[u32], ran: &[u32]) -> Seen {
        let seen = Seen::default();
        for tries in tries {
            let number = seen.begin(event_type, 0, 0);
            seen.confirm(event_type, 0, number, *tries, false);
        }
        for place in ran {
            seen.runs.push(first_number(event_type, 0) + place, 0, 0);
        }
        seen
    }

    #[test]
    fn an_event_that_was_not_handled_and_is_in_no_queue_is_lost() {
        let left = [(first_number(NOW, 0) + 2).to_string()];
        let found = Account::of(&seen(NOW, &[1, 1, 1, 2], &[0, 3, 3]), &left);
        let expected = Account { sent: 4, repeated: 1, runs: 3, lost: 1, twice: 1, left: 1, ..Account::default() };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_run_after_a_later_event_of_a_block_type_is_out_of_order() {
        let found = Account::of(&seen(ORDERED, &[1, 1, 1], &[0, 2, 1]), &[]);
        assert_eq!((found.unordered, found.lost), (1, 0));
    }

    #[test]
    fn a_change_that_was_published_again_may_run_again() {
        let found = Account::of(&seen(CHANGE, &[2, 1], &[0, 0, 1, 1]), &[]);
        assert_eq!((found.twice, found.lost, found.backwards), (1, 0, 0));
    }
}

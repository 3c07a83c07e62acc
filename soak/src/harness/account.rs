//! Accounts for the confirmed events: which of them handlers finished, and how often; and for changes of references, by the order
//! of their publishes and the calls of the handlers.
//!
//! An account is a pure function of the publishes that were confirmed and the lines that handlers wrote.

use std::ops::Range;

use hatchery_soak::runs::Run;

/// The events of a run, each identified by its number.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Number of events that were handled at least once.
    pub(crate) handled: usize,
    /// Events that were handled more than once.
    pub(crate) twice: Vec<u32>,
    /// Events that were never handled.
    pub(crate) missing: Vec<u32>,
    /// Number of runs of other events.
    pub(crate) strangers: usize,
    /// Number of runs before their time.
    pub(crate) early: usize,
}

impl Account {
    /// Takes the account of runs in this process.
    pub(crate) fn of(expected: Range<u32>, runs: &[Run]) -> Self {
        let early = runs.iter().filter(|run| run.is_early()).count();
        Self { early, ..Self::take(expected, runs.iter().map(|run| run.number)) }
    }

    pub(crate) fn take(expected: Range<u32>, done: impl IntoIterator<Item = u32>) -> Self {
        let mut times = vec![0_u32; expected.len()];
        let mut account = Self::default();
        for number in done {
            match number.checked_sub(expected.start).and_then(|at| times.get_mut(at as usize)) {
                Some(times) => *times += 1,
                None => account.strangers += 1,
            }
        }
        for (number, times) in expected.zip(times) {
            match times {
                0 => account.missing.push(number),
                1 => account.handled += 1,
                _ => {
                    account.handled += 1;
                    account.twice.push(number);
                }
            }
        }
        account
    }
}

/// Counts the numbers that follow a higher one.
pub(crate) fn backwards(numbers: &[u32]) -> usize {
    numbers.windows(2).filter(|pair| pair[1] < pair[0]).count()
}

/// The account of the changes. Event `n` is a change of reference `n % references`; a later event of the same reference is a newer
/// change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Number of changes that were neither handled, nor replaced by a newer change that was handled.
    pub(crate) lost: usize,
    /// Number of references whose last change was not handled.
    pub(crate) without_last: usize,
    /// Number of calls with an older change of a reference after a newer one.
    pub(crate) backwards: usize,
}

impl Changes {
    /// Takes the account. `unversioned` tells for each event whether it has no version and therefore competes with no
    /// other. `calls` are the events of the handlers' calls, in the order in which the calls began.
    pub(crate) fn take(references: u32, unversioned: &[bool], calls: &[u32]) -> Self {
        let references = references as usize;
        let mut handled = vec![false; unversioned.len()];
        let mut newest = vec![None; references];
        let mut account = Self { lost: 0, without_last: 0, backwards: 0 };
        for call in calls {
            let call = *call as usize;
            handled[call] = true;
            let newest = &mut newest[call % references];
            if newest.is_some_and(|newest| call < newest) {
                account.backwards += 1;
            }
            *newest = (*newest).max(Some(call));
        }
        let mut is_replaced = vec![false; references];
        for event in (0..unversioned.len()).rev() {
            let reference = event % references;
            if event + references >= unversioned.len() && !handled[event] {
                account.without_last += 1;
            }
            if handled[event] {
                // An event without a version replaces no other.
                is_replaced[reference] |= !unversioned[event];
            } else if unversioned[event] || !is_replaced[reference] {
                account.lost += 1;
            }
        }
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_counted_by_its_number() {
        let account = Account::take(10..15, [10, 12, 12, 14, 9, 15, 12]);
        let expected = Account { handled: 3, twice: vec![12], missing: vec![11, 13], strangers: 2, early: 0 };
        assert_eq!(account, expected);
    }

    #[test]
    fn a_number_after_a_higher_one_runs_backwards() {
        assert_eq!([backwards(&[0, 1, 1, 3]), backwards(&[0, 2, 1, 3, 0])], [0, 2]);
    }

    #[test]
    fn a_change_that_neither_ran_nor_was_replaced_by_a_change_that_ran_is_lost() {
        let (yes, no) = (true, false);
        // Two references with three changes each: 0, 2, 4 and 1, 3, 5.
        let take = |unversioned: [bool; 6], calls: &[u32]| {
            let Changes { lost, without_last, backwards } = Changes::take(2, &unversioned, calls);
            (lost, without_last, backwards)
        };
        assert_eq!(take([no; 6], &[4, 5]), (0, 0, 0));
        assert_eq!(take([no; 6], &[4]), (3, 1, 0));
        assert_eq!(take([no; 6], &[4, 3]), (1, 1, 0));
        assert_eq!(take([no; 6], &[2, 5, 0, 4]), (0, 0, 1), "0 after 2");
        assert_eq!(take([no; 6], &[4, 4, 5]), (0, 0, 0));
        assert_eq!(take([no, no, yes, no, no, no], &[4, 5]), (1, 0, 0), "2 had no version");
        assert_eq!(take([no, no, no, no, yes, no], &[4, 5]), (2, 0, 0), "4 replaces neither 0 nor 2");
    }
}

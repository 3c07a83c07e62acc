//! Accounts for the confirmed events: which of them handlers finished, and how often.
//!
//! The account is a pure function of the publishes that were confirmed and the lines that handlers wrote.

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
}

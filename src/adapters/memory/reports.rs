//! How runs ended, as workers tell `topology status`, kept in memory.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use crate::domain::{register::ended_runs::EndedRuns, words::EventType};

/// The length of a slice in seconds, and for how many slices one is kept: for half an hour, as in Redis.
const SLICE: i64 = 10;
const KEPT: i64 = 180;

/// The runs that ended in each slice, by its number since 1970.
#[derive(Default)]
pub(super) struct Runs(BTreeMap<i64, BTreeMap<EventType, EndedRuns>>);

impl Runs {
    /// Adds runs to the present slice, and forgets old slices.
    pub(super) fn add(&mut self, now: Timestamp, runs: &BTreeMap<EventType, EndedRuns>) {
        let now = now.as_second() / SLICE;
        self.0.retain(|slice, _| now - slice <= KEPT);
        let slice = self.0.entry(now).or_default();
        for (event_type, runs) in runs {
            let mut runs = runs.clone();
            runs.add_earlier(slice.remove(event_type).unwrap_or_default());
            slice.insert(event_type.clone(), runs);
        }
    }

    /// Returns the slices with their ages, the newest first.
    #[cfg(feature = "internals")]
    pub(super) fn read(&self, now: Timestamp) -> Vec<(Duration, BTreeMap<EventType, EndedRuns>)> {
        let now = now.as_second() / SLICE;
        let age = |slice: i64| Duration::from_secs(u64::try_from((now - slice) * SLICE).unwrap_or_default());
        self.0.iter().rev().map(|(slice, runs)| (age(*slice), runs.clone())).collect()
    }
}

#[cfg(all(test, feature = "internals"))]
mod tests {
    use super::*;

    #[test]
    fn runs_are_added_up_by_slice_and_kept_for_half_an_hour() {
        let mail: EventType = "mail".parse().expect("a word");
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let failed = |error: &str| EndedRuns { ended: 2, failed: 1, error: Some(error.to_owned()) };
        let mut runs = Runs::default();
        for (second, error) in [(1_000, "first"), (1_009, "second"), (1_010, "third")] {
            runs.add(at(second), &BTreeMap::from([(mail.clone(), failed(error))]));
        }
        let read: Vec<_> =
            runs.read(at(1_025)).into_iter().map(|(age, runs)| (age.as_secs(), runs[&mail].clone())).collect();
        let both = EndedRuns { ended: 4, failed: 2, error: Some("second".to_owned()) };
        assert_eq!(read, [(10, failed("third")), (20, both)]);
        runs.add(at(1_009 + 1_801), &BTreeMap::new());
        assert_eq!(runs.read(at(1_009 + 1_801)).len(), 2, "the slice of 1,000 s is gone, and that of now is empty");
    }
}

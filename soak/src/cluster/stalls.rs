//! Measures for how long streams of confirms and runs stall.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::harness::lock;

/// A kind of traffic that never pauses while the cluster is healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream {
    /// The confirms of one type at one publisher, both by their index.
    Confirms { publisher: usize, event_type: usize },
    /// The runs of one worker. Runs of `ordered` do not count, because only one worker at a time has them.
    Worker(usize),
    /// The runs of one type, by its index.
    Handled(usize),
}

/// The moments at which each stream moved.
#[derive(Clone, Default)]
pub(super) struct Marks(Arc<Mutex<BTreeMap<Stream, Vec<Instant>>>>);

impl Marks {
    pub(super) fn mark(&self, stream: Stream) {
        lock(&self.0).entry(stream).or_default().push(Instant::now());
    }

    pub(super) fn moved_since(&self, stream: Stream, from: Instant) -> bool {
        lock(&self.0).get(&stream).and_then(|times| times.last()).is_some_and(|last| *last > from)
    }

    /// Returns the longest stall of any of these streams between these two moments.
    pub(super) fn longest(&self, streams: &[Stream], from: Instant, to: Instant) -> Duration {
        let marks = lock(&self.0);
        let of = |stream| longest(marks.get(stream).map_or(&[], Vec::as_slice), from, to);
        streams.iter().map(of).max().unwrap_or_default()
    }
}

/// Returns the longest time without a mark between these two moments.
fn longest(times: &[Instant], from: Instant, to: Instant) -> Duration {
    let within = times.iter().copied().filter(|time| *time > from && *time < to);
    let ends: Vec<Instant> = within.chain([to]).collect();
    let begins = [from].into_iter().chain(ends.iter().copied());
    begins.zip(&ends).map(|(begin, end)| end.duration_since(begin)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stall_is_measured_only_within_the_given_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let longest = |times: &[u64], from, to| {
            let times: Vec<Instant> = times.iter().map(|time| at(*time)).collect();
            longest(&times, at(from), at(to)).as_secs()
        };
        assert_eq!(longest(&[1, 2, 9, 10], 0, 11), 7);
        assert_eq!(longest(&[1, 2, 9, 10], 5, 11), 4, "only what falls into the time counts");
        assert_eq!(longest(&[1, 2], 0, 30), 28, "up to the end");
        assert_eq!(longest(&[], 3, 30), 27);
    }
}

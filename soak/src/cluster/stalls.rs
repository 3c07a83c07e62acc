//! When something last moved, and for how long it stood still.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Traffic that never pauses while the cluster is healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream {
    /// The confirms of one type at one publisher, both by their places.
    Confirms { publisher: usize, event_type: usize },
    /// The events that one worker handles, of any type but `ordered`, which one worker at a time handles.
    Worker(usize),
    /// The events of a type that are handled, by the place of the type.
    Handled(usize),
}

/// The moments at which each stream moved.
#[derive(Clone, Default)]
pub(super) struct Marks(Arc<Mutex<BTreeMap<Stream, Vec<Instant>>>>);

impl Marks {
    pub(super) fn mark(&self, stream: Stream) {
        self.lock().entry(stream).or_default().push(Instant::now());
    }

    pub(super) fn moved_since(&self, stream: Stream, from: Instant) -> bool {
        self.lock().get(&stream).and_then(|times| times.last()).is_some_and(|last| *last > from)
    }

    /// For how long the slowest of these streams stood still.
    pub(super) fn longest(&self, streams: &[Stream], from: Instant, to: Instant) -> Duration {
        let marks = self.lock();
        let of = |stream| longest(marks.get(stream).map_or(&[], Vec::as_slice), from, to);
        streams.iter().map(of).max().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Stream, Vec<Instant>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The longest time without a mark between these two moments.
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
    fn a_stream_stands_still_between_two_marks_of_the_time_that_is_looked_at() {
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

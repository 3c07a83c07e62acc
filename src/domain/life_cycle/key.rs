//! The key `life-cycle`: a stream that is told what happens to events, and how much it keeps.

use std::time::Duration;

/// A stream has segments of this size at most. RabbitMQ removes whole segments, so its default of 500 MB would make the stream half as
/// large again as a `max-size` of 1 GiB says.
const LARGEST_SEGMENT: u64 = 100 << 20;

/// How many segments a stream has at least when it is full. It exceeds its size by one, and keeps less than its size by one.
const SEGMENTS: u64 = 10;

/// The key `life-cycle`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifeCycle {
    /// Which transitions of events the stream is told.
    pub events: Told,
    /// How long the stream keeps a transition.
    pub keep: Duration,
    /// How many bytes the stream keeps.
    pub max_size: u64,
}

/// Which transitions of events the stream is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// All.
    All,
    /// Those that a person asks for when something is wrong.
    Failures,
    /// None: there is no stream.
    Off,
}

impl LifeCycle {
    /// Whether the topology has the stream.
    #[must_use]
    pub fn has_stream(&self) -> bool {
        self.events != Told::Off
    }

    /// Returns the key as the policy of the stream says it: `max-age` has a unit, and knows none below a second.
    #[must_use]
    pub fn max_age(&self) -> String {
        format!("{}s", self.keep.as_millis().div_ceil(1_000).max(1))
    }

    /// Returns the size of the stream's segments in bytes.
    #[must_use]
    pub fn segment_size(&self) -> u64 {
        (self.max_size / SEGMENTS).min(LARGEST_SEGMENT)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(10 << 20, 1 << 20)]
    #[case(1 << 30, 100 << 20)]
    #[case(1 << 40, 100 << 20)]
    fn a_full_stream_has_at_least_ten_segments(#[case] max_size: u64, #[case] expected: u64) {
        let spec = LifeCycle { events: Told::All, keep: Duration::from_secs(1), max_size };
        assert_eq!(spec.segment_size(), expected);
    }

    #[rstest]
    #[case(1_000, "1s")]
    #[case(1_001, "2s")]
    #[case(604_800_000, "604800s")]
    fn the_age_is_in_whole_seconds_and_never_shorter(#[case] millis: u64, #[case] expected: &str) {
        let spec = LifeCycle { events: Told::All, keep: Duration::from_millis(millis), max_size: 1 << 30 };
        assert_eq!(spec.max_age(), expected);
    }
}

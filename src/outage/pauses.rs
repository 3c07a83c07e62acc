//! The pauses between two tries.

use std::time::Duration;

use backon::ExponentialBuilder;

/// The pauses between tries that have no end: from a tenth of a second to five seconds, with jitter, which makes a pause up
/// to twice as long.
pub(crate) fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(Duration::from_millis(2_500))
        .without_max_times()
        .with_jitter()
}

#[cfg(test)]
mod tests {
    use backon::BackoffBuilder as _;

    use super::*;

    #[test]
    fn no_pause_is_longer_than_five_seconds() {
        for _ in 0..100 {
            let longest = backoff().build().take(20).max().expect("it never ends");
            assert!(longest <= Duration::from_secs(5), "{longest:?}");
        }
    }
}

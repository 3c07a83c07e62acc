//! Outages of [the broker](BrokerOutage) (also for [consumers](ConsumerOutage)), of [the register](RegisterHealth) and of [a handler](HandlerHealth): their state,
//! their log lines and their metrics. A line is written when the state changes, and not for each event.

mod broker;
mod handler;
mod register;

use std::time::Duration;

use backon::ExponentialBuilder;

pub(crate) use self::{
    broker::{BrokerOutage, ConsumerOutage},
    handler::HandlerHealth,
    register::{Health, Known, RegisterHealth, Side},
};

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

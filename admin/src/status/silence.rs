//! Tells since when a channel holds deliveries and acknowledges none.

use std::time::Duration;

use hatchery::{
    Topology,
    internals::{
        names::Names,
        spec::{OnFailure, TypeSpec},
    },
};

use crate::figures::{Channel, Sample};

/// How long a consumer that is not a worker may think about a delivery.
const OTHERS: Duration = Duration::from_mins(1);

/// How much longer than its longest run a worker may take: a program that overstays is ended in five seconds, the worker settles and
/// acknowledges, and the broker's samples are five seconds apart.
const MARGIN: Duration = Duration::from_secs(20);

/// Returns for how long this channel has held deliveries and acknowledged none: at that time it held one of those that it
/// holds now, and nothing was acknowledged since. The time ends with the broker's last sample, so no two clocks are
/// compared. `None` if the broker keeps no history, or if the channel held none of them at the last sample.
pub(super) fn silent_for(channel: &Channel) -> Option<Duration> {
    let delivered = channel.delivered.as_ref()?;
    // A channel that never acknowledged anything may have no such total.
    let none = || delivered.iter().map(|given| Sample { sample: 0, ..*given }).collect();
    let acknowledged = &channel.acknowledged.clone().unwrap_or_else(none);
    let last = acknowledged.first()?;
    let (acks, deliveries) = (last.sample, delivered.first()?.sample);
    // The number that is held now is newer than the samples: a burst of this moment is in none of them.
    let held = channel.held.min(deliveries.saturating_sub(acks));
    let was_silent = |(acked, given): &(&Sample, &Sample)| {
        // Of the deliveries that are held now, fewer were delivered since than there are.
        acked.sample == acks && given.timestamp == acked.timestamp && deliveries - given.sample.min(deliveries) < held
    };
    let (since, _) = acknowledged.iter().zip(delivered).take_while(was_silent).last()?;
    u64::try_from(last.timestamp - since.timestamp).ok().map(Duration::from_millis)
}

/// Returns for how long a healthy channel may acknowledge none of its deliveries: a worker as long as a run may take.
pub(super) fn patience(topology: &Topology, channel: &Channel) -> Duration {
    let names = Names::new(topology.name.clone());
    let consumed =
        topology.types.iter().filter(|(event_type, _)| channel.queues.contains(&names.processing(event_type)));
    consumed.map(|(_, spec)| longest_run(spec) + MARGIN).max().unwrap_or(OTHERS)
}

/// Returns the longest patience with any channel of this topology.
pub(super) fn longest_patience(topology: &Topology) -> Duration {
    topology.types.values().map(|spec| longest_run(spec) + MARGIN).fold(OTHERS, Duration::max)
}

/// Returns how long one delivery may run, with the tries in place.
pub(super) fn longest_run(spec: &TypeSpec) -> Duration {
    match spec.on_failure {
        OnFailure::InPlace { tries, delay } => (spec.handler_timeout + delay) * tries,
        OnFailure::Retry | OnFailure::Block | OnFailure::Drop => spec.handler_timeout,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Returns the samples of a total, the newest first, ten seconds apart.
    fn samples(totals: &[u64]) -> Vec<Sample> {
        let at = |back: usize| 1_000_000 - i64::try_from(back).expect("few") * 10_000;
        totals.iter().enumerate().map(|(n, total)| Sample { sample: *total, timestamp: at(n) }).collect()
    }

    #[rstest]
    // The channel was given 30, and has acknowledged none.
    #[case(30, &[0, 0, 0, 0], &[30, 30, 0, 0], Some(10))]
    // The channel has been idle for long, and was given 30 just now.
    #[case(30, &[7, 7, 7, 7], &[37, 7, 7, 7], Some(0))]
    // The channel was given 30 after the last sample, and never anything before, or only what it has acknowledged.
    #[case(30, &[0, 0, 0, 0], &[0, 0, 0, 0], None)]
    #[case(30, &[7, 7, 7, 7], &[7, 7, 7, 7], None)]
    // Of the 30 that the channel holds, 20 came after the last sample.
    #[case(30, &[7, 7, 7, 7], &[17, 7, 7, 7], Some(0))]
    // The channel acknowledges, and is given more.
    #[case(30, &[9, 6, 3, 0], &[39, 36, 33, 30], Some(0))]
    // The channel holds what it was given twenty seconds ago, and is given more since.
    #[case(30, &[5, 5, 5, 4], &[35, 30, 20, 5], Some(20))]
    // The sample before has all but the 30 that it holds.
    #[case(30, &[5, 5, 5, 4], &[35, 30, 5, 5], Some(10))]
    fn a_channel_is_silent_since_it_held_what_it_holds(
        #[case] held: u64,
        #[case] acknowledged: &[u64],
        #[case] delivered: &[u64],
        #[case] expected: Option<u64>,
    ) {
        let channel = Channel {
            held,
            acknowledged: Some(samples(acknowledged)),
            delivered: Some(samples(delivered)),
            ..Channel::default()
        };
        assert_eq!(silent_for(&channel), expected.map(Duration::from_secs));
    }

    #[test]
    fn without_a_history_nothing_is_said() {
        let channel = Channel { held: 200, ..Channel::default() };
        assert_eq!(silent_for(&channel), None);
    }
}

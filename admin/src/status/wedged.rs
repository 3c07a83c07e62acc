//! Tells which timers hold due events that they cannot deliver.
//!
//! A quorum queue hands expired messages to a forwarder, and counts in `messages_dlx` those that their target has not
//! confirmed yet. A healthy timer has some too, for milliseconds each, so one reading tells nothing: it takes several, at
//! least a statistics interval apart.

use std::time::Duration;

use hatchery::internals::compile::Desired;

use super::{finding::Queue, observation::Reading};
use crate::figures::Figures;

/// The time between two readings: more than the five seconds after which a quorum queue reports its figures anew.
pub(super) const APART: Duration = Duration::from_secs(6);

/// The number of readings after which a timer counts as wedged.
pub(super) const READINGS: usize = 3;

/// The number of messages that a forwarder takes at a time. Once so many cannot be delivered, no other can.
const FORWARDER: u64 = 32;

/// Returns the wedged timers, with the number of events that they cannot deliver.
pub(super) fn wedged(desired: &Desired, readings: &[Reading]) -> Vec<Queue> {
    if readings.len() < READINGS {
        return Vec::new();
    }
    suspects(desired, readings)
}

/// Returns the timers that no reading has cleared of being wedged, with the number of messages in the forwarder.
pub(super) fn suspects(desired: &Desired, readings: &[Reading]) -> Vec<Queue> {
    let timers = desired.queues.iter().filter(|queue| queue.arguments.contains_key("x-message-ttl"));
    timers
        .filter_map(|timer| {
            let figures: Option<Vec<&Figures>> =
                readings.iter().map(|reading| reading.queues.get(&timer.name)).collect();
            let messages = stuck(&figures?)?;
            Some(Queue { queue: timer.name.clone(), messages })
        })
        .collect()
}

/// Returns how many messages the forwarder of a queue could not deliver through all these readings. `None` if one of the
/// readings shows that messages leave.
fn stuck(figures: &[&Figures]) -> Option<u64> {
    let waiting = |figures: &Figures| figures.counts.messages_dlx.filter(|waiting| *waiting > 0);
    let mut last = waiting(figures.last()?)?;
    for pair in figures.windows(2) {
        let (before, after) = (waiting(pair[0])?, waiting(pair[1])?);
        let left = left(pair[0], pair[1]);
        // A full forwarder lets no message pass. One with a few stuck messages lets others pass, and then the numbers
        // change.
        let stays = if before < FORWARDER { left == Some(0) } else { left.is_none_or(|left| left <= 0) };
        if after < before || !stays {
            return None;
        }
        last = after;
    }
    Some(last)
}

/// Returns how many messages have left the queue between two readings: as many fewer are there than there would be
/// otherwise. Negative if messages came from another timer, which the broker does not count.
fn left(before: &Figures, after: &Figures) -> Option<i64> {
    let published = |figures: &Figures| figures.message_stats.as_ref().and_then(|stats| stats.publish);
    let added = published(after).zip(published(before)).map_or(0, |(after, before)| after.saturating_sub(before));
    i64::try_from(before.counts.messages? + added).ok()?.checked_sub_unsigned(after.counts.messages?)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{figures::MessageStats, live::Counts};

    /// Returns the figures of readings with these numbers: in the forwarder, in the queue, and published into it so far.
    fn figures(readings: &[(u64, u64, u64)]) -> Vec<Figures> {
        let figures = |(dlx, messages, published): &(u64, u64, u64)| Figures {
            counts: Counts { messages_dlx: Some(*dlx), messages: Some(*messages), ..Counts::default() },
            message_stats: Some(MessageStats { publish: Some(*published), ack_details: None }),
            ..Figures::default()
        };
        readings.iter().map(figures).collect()
    }

    #[rstest]
    #[case("all that expire pile up", &[(40, 50, 50), (45, 50, 50), (50, 50, 50)], Some(50))]
    #[case("and more are published", &[(40, 50, 50), (45, 60, 60), (50, 70, 70)], Some(50))]
    #[case("fewer than fill the forwarder", &[(3, 10, 10), (3, 10, 10), (3, 12, 12)], Some(3))]
    #[case("a burst is delivered", &[(5_000, 9_000, 9_000), (3_000, 6_000, 9_000)], None)]
    #[case("a burst begins", &[(500, 90_000, 90_000), (3_000, 80_000, 90_000)], None)]
    #[case("events pass, and more come", &[(40, 400, 1_000), (42, 450, 1_200), (60, 460, 1_400)], None)]
    #[case("a few pass", &[(1, 20, 100), (1, 19, 110)], None)]
    #[case("nothing is in the forwarder", &[(0, 20, 20), (0, 20, 20)], None)]
    #[case("it was for a moment", &[(5, 20, 20), (0, 15, 20)], None)]
    fn a_timer_is_stuck_if_nothing_leaves_it(
        #[case] what: &str,
        #[case] readings: &[(u64, u64, u64)],
        #[case] expected: Option<u64>,
    ) {
        let figures = figures(readings);
        assert_eq!(stuck(&figures.iter().collect::<Vec<_>>()), expected, "{what}");
    }

    #[test]
    fn a_queue_whose_figures_are_not_known_is_not_suspected() {
        let (known, unknown) = (figures(&[(40, 50, 50)]), Figures::default());
        assert_eq!(stuck(&[&known[0], &unknown]), None);
        assert_eq!(stuck(&[&unknown, &known[0]]), None);
    }
}

//! Where the newest copy of an event should be, as its state tells. The broker itself cannot be asked for one message:
//! the copy may also be in `unrouted` or in a timer that cannot deliver it, or somebody may have removed it.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    compile,
    names::Names,
    reason::failed_at,
    register::{event_info::EventInfo, event_state::State},
    spec::{Topology, TypeSpec},
    time,
    ttl::Ttl,
};

/// The place of an event's newest copy on the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// The copy is due, and should wait in this queue for a worker.
    Due {
        /// The processing queue.
        queue: String,
    },
    /// A worker has it, unacknowledged from this queue.
    Running {
        /// The processing queue.
        queue: String,
    },
    /// The copy waits in one of these queues. RabbitMQ moves it from queue to queue, and at last to the processing queue.
    Delayed {
        /// A name, or a pattern with `*`.
        queues: Vec<String>,
        /// The processing queue.
        then: String,
    },
    /// The event is given up, and its copy waits in this queue for people.
    DeadLetter {
        /// The queue of the type's dead letters.
        queue: String,
    },
    /// The event was handled or cancelled. A message of it that is still in a queue is dropped as stale when it is delivered.
    Ended,
}

impl Whereabouts {
    /// Returns the place of an event. `None` if the file does not have its type.
    #[must_use]
    pub fn of(event: &EventInfo, topology: &Topology, now: Timestamp) -> Option<Self> {
        let spec = topology.types.get(&event.event_type)?;
        let names = Names::new(topology.name.clone());
        let processing = names.processing(&event.event_type);
        let is_due = event.due.is_none_or(|due| due <= now);
        Some(match event.state {
            State::Handled | State::Cancelled => Self::Ended,
            // Without a lease no worker is known to have it: RabbitMQ has returned its message, or will.
            State::Running if event.leased == Some(false) => Self::Due { queue: processing },
            State::Running => Self::Running { queue: processing },
            State::DeadLetter => Self::DeadLetter { queue: names.dead_letters(&event.event_type) },
            State::Waiting | State::Retry if is_due => Self::Due { queue: processing },
            State::Waiting | State::Retry => {
                let retrying = retry_ttl(event, spec).map(|ttl| names.retrying(&event.event_type, ttl));
                let queues = retrying.map_or_else(|| timers(topology, &names), |queue| vec![queue]);
                Self::Delayed { queues, then: processing }
            }
        })
    }
}

/// The longest time from a failure to the moment from which the delay of its retry counts.
const FOLLOW_UP: Duration = Duration::from_secs(1);

/// Returns the TTL of the retry queue that holds a failed event: the one that ends at its due time. `None` if it waits
/// in the ladder instead, because its delay has jitter or was asked for by the handler.
fn retry_ttl(event: &EventInfo, spec: &TypeSpec) -> Option<Ttl> {
    if event.state != State::Retry {
        return None;
    }
    let wait = time::until(failed_at(event.reason.as_deref()?)?, event.due?);
    let is_of = |ttl: &Ttl| wait.checked_sub(ttl.as_duration()).is_some_and(|more| more < FOLLOW_UP);
    spec.retry.delays.iter().copied().find(is_of)
}

/// Returns the queues that delay events of any type. Which of them holds an event depends on when it was published, which
/// the register does not have.
fn timers(topology: &Topology, names: &Names) -> Vec<String> {
    let mut queues = Vec::new();
    if !compile::hatcheries(topology).is_empty() {
        queues.push(format!("{}.hatchery.*", names.owner()));
    }
    queues.push(format!("{}.ladder.*", names.owner()));
    queues
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::domain::register::{
        Stage,
        event_info::tests::{known, state},
        state::SlotState,
    };

    const FILE: &str = "version: 1\nname: t\ntypes: { mail: { retry: { delays: [10s, 1m], max-attempts: 3 } } }\n";

    fn delayed(queues: &[&str]) -> Whereabouts {
        let queues = queues.iter().map(|queue| (*queue).to_owned()).collect();
        Whereabouts::Delayed { queues, then: "t.processor.mail".to_owned() }
    }

    fn due() -> Whereabouts {
        Whereabouts::Due { queue: "t.processor.mail".to_owned() }
    }

    /// An event that is due at second 1,000 and failed this many seconds before.
    fn failed(seconds_before: i64) -> EventInfo {
        let failed_at = Timestamp::from_second(1_000 - seconds_before).expect("a time");
        let reason = format!("retry: attempt=1 failed_at={} error=\"no luck\"", time::millis_text(failed_at));
        EventInfo { reason: Some(reason), ..known("i", state((5, false, 1), 5, false), Stage::Retry) }
    }

    fn waiting() -> EventInfo {
        known("i", state((0, false, 0), 5, false), Stage::Waiting)
    }

    #[rstest]
    #[case::not_due(waiting(), 999, delayed(&["t.hatchery.*", "t.ladder.*"]))]
    #[case::due(waiting(), 1_000, due())]
    #[case::in_its_retry_queue(failed(60), 999, delayed(&["t.retry.mail.1m"]))]
    #[case::retried_after_another_time(failed(61), 999, delayed(&["t.hatchery.*", "t.ladder.*"]))]
    #[case::sent_a_moment_after_it_failed(
        EventInfo { due: Timestamp::from_millisecond(1_000_003).ok(), ..failed(60) }, 999, delayed(&["t.retry.mail.1m"]))]
    #[case::retry_due(failed(60), 1_000, due())]
    #[case::running(known("i", state((5, false, 0), 5, true), Stage::Waiting), 1_001,
        Whereabouts::Running { queue: "t.processor.mail".to_owned() })]
    #[case::started_by_a_worker_that_is_gone(
        EventInfo { leased: Some(false), ..known("i", state((5, false, 0), 5, true), Stage::Waiting) }, 1_001, due())]
    #[case::given_up(known("i", state((5, false, 3), 5, false), Stage::DeadLetter), 1_001,
        Whereabouts::DeadLetter { queue: "t.dead-letter.mail".to_owned() })]
    #[case::handled(known("i", state((5, true, 0), 5, false), Stage::Waiting), 999, Whereabouts::Ended)]
    #[case::cancelled(
        known("i", SlotState { cancelled: true, ..state((9, true, 0), 5, false) }, Stage::Waiting), 999, Whereabouts::Ended)]
    fn the_state_tells_the_queue(#[case] event: EventInfo, #[case] second: i64, #[case] expected: Whereabouts) {
        let topology = crate::file::read(FILE, "topology.yaml").expect("a valid file");
        let now = Timestamp::from_second(second).expect("a time");
        assert_eq!(Whereabouts::of(&event, &topology, now), Some(expected));
    }

    #[test]
    fn an_event_of_a_type_that_left_the_file_has_no_queue() {
        let topology = crate::file::read("version: 1\nname: t\ntypes: { other: {} }\n", "topology.yaml");
        assert_eq!(Whereabouts::of(&waiting(), &topology.expect("a valid file"), Timestamp::UNIX_EPOCH), None);
    }
}

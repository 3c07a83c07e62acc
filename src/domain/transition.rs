//! Transitions: the things that happen to an event.

use std::time::Duration;

use jiff::Timestamp;

use super::settlement::{Decision, Failed, Finish};

/// Something that has happened to an event, for [`Worker::observe`](crate::Worker::observe).
///
/// The worker tells it once the effect is confirmed: by the broker where a copy was published, by the register where the event
/// is done. So a worker that is killed leaves some untold, and none is told that has not happened. An event that is delivered
/// again may tell it twice. A failure that no copy follows is told at once. The drop of a copy that is finished or cancelled
/// already is none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transition {
    /// The handler starts.
    Started,
    /// The handler has handled the event to its end.
    #[non_exhaustive]
    Done {
        /// How long the run took.
        took: Duration,
    },
    /// The handler has ended the event by a business rule.
    #[non_exhaustive]
    Discarded {
        /// The handler's reason, in one line.
        reason: String,
        /// How long the run took.
        took: Duration,
    },
    /// The event was cancelled while it ran. Nothing of the run's outcome is carried out.
    #[non_exhaustive]
    Cancelled {
        /// How long the run took.
        took: Duration,
    },
    /// A run has failed, and the event will run again.
    #[non_exhaustive]
    Failed {
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The type's `max-attempts`.
        max_attempts: u32,
        /// The text of the failure, in one line.
        error: String,
        /// How long the run took.
        took: Duration,
        /// How the event runs again.
        then: Then,
    },
    /// A run has failed, and the event is dropped (`on-failure: drop`).
    #[non_exhaustive]
    Dropped {
        /// The text of the failure, in one line.
        reason: String,
        /// How long the run took.
        took: Duration,
    },
    /// The handler has put the event off.
    #[non_exhaustive]
    Requeued {
        /// When the event is due.
        at: Timestamp,
        /// The handler's reason, in one line.
        reason: String,
        /// How long the run took.
        took: Duration,
    },
    /// The event could not start and waits for a moment: its reference is busy, its handler is unavailable, or its key in Redis
    /// is damaged.
    PutOff,
    /// A newer event of its reference runs in its place.
    Replaced,
    /// The event has expired before it started, and does not run.
    #[non_exhaustive]
    Expired {
        /// When it expired.
        at: Timestamp,
        /// Whether it is in dead-letter. If not, it is gone (`on-expiry: discard`).
        dead_lettered: bool,
    },
    /// The event is in dead-letter.
    #[non_exhaustive]
    DeadLettered {
        /// The header `reason`.
        reason: String,
        /// How long the last run took. `None` if the event did not run, because its worker had died too often.
        took: Option<Duration>,
    },
    /// The lease has ended before the run did. Another worker may run an event of its reference.
    LeaseLost,
}

/// How an event runs again after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Then {
    /// As a copy, which waits on the broker.
    #[non_exhaustive]
    Retry {
        /// The delay.
        after: Duration,
    },
    /// In the same worker, and the attempt goes on (`on-failure: in-place`).
    #[non_exhaustive]
    InPlace {
        /// The number of the failed try, from 1.
        tried: u32,
        /// The delay.
        after: Duration,
    },
    /// In the same worker, and the events behind it wait (`on-failure: block`).
    #[non_exhaustive]
    Block {
        /// The delay.
        after: Duration,
    },
}

impl Transition {
    /// Returns what a decision comes to after a run that took so long. `None` if the event was skipped.
    pub(crate) fn of(decision: &Decision, took: Option<Duration>, max_attempts: u32) -> Option<Self> {
        let ran = took.unwrap_or_default();
        let retried = |failed, after| Self::failed(failed, ran, max_attempts, Then::Retry { after });
        Some(match decision {
            Decision::Finish(Finish::Skip) => return None,
            Decision::Finish(Finish::Expire(at)) => Self::Expired { at: *at, dead_lettered: false },
            Decision::Expire(at, _) => Self::Expired { at: *at, dead_lettered: true },
            Decision::Finish(Finish::Done) => Self::Done { took: ran },
            Decision::Finish(Finish::Cancelled) => Self::Cancelled { took: ran },
            Decision::Finish(Finish::Discard { reason }) => Self::Discarded { reason: reason.clone(), took: ran },
            Decision::Drop { reason } => Self::Dropped { reason: reason.clone(), took: ran },
            Decision::Retry { ttl, failed } => retried(failed, ttl.as_duration()),
            Decision::RetryAfter { after, failed } => retried(failed, *after),
            Decision::Requeue { at, reason } => Self::Requeued { at: *at, reason: reason.clone(), took: ran },
            Decision::DeadLetter(failed) => Self::DeadLettered { reason: failed.reason.clone(), took },
        })
    }

    /// Returns the failure of a run after which the event runs again.
    pub(crate) fn failed(failed: &Failed, took: Duration, max_attempts: u32, then: Then) -> Self {
        // An attempt in place counts once its last try has failed.
        let attempt = failed.attempts.saturating_add(matches!(then, Then::InPlace { .. }).into());
        Self::Failed { attempt, max_attempts, error: failed.error().to_owned(), took, then }
    }
}

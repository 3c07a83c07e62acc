//! Decides what follows from a handler's answer: a pure function of the outcome, the run, and the type's `on-failure` and
//! `retry`.
//!
//! Decide, then act: `work::follow_up` carries out the [`Decision`].

use std::time::Duration;

use jiff::Timestamp;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    spec::{OnExpiry, OnFailure, Retry},
    time,
    ttl::Ttl,
};

/// A handler's answer, which decides what happens to the event next.
///
/// An error, a panic, and no answer within `handler-timeout` count as a [`Retry`](Self::Retry) with their text as the
/// reason. A reason is for people: the message in the management UI and the log show it in one line.
///
/// A handler is easiest to test if a function of its own chooses the outcome:
///
/// ```
/// use std::time::Duration;
/// use hatchery::{Outcome, jiff::Timestamp, parse_time};
///
/// /// Chooses the outcome for an answer of the mail server.
/// fn outcome(code: u16) -> Outcome {
///     match code {
///         200..300 => Outcome::Done,
///         421 => {
///             let after = Some(Duration::from_mins(1));
///             Outcome::Retry { reason: "the server is busy".to_owned(), after }
///         }
///         550 => Outcome::DeadLetter { reason: "no such mailbox".to_owned() },
///         551 => Outcome::Discard { reason: "they have left".to_owned() },
///         code => Outcome::Retry { reason: format!("the server said {code}"), after: None },
///     }
/// }
///
/// /// Imports an employee who leaves again on their last day.
/// fn next(leaves: Option<Timestamp>, now: Timestamp) -> Outcome {
///     match leaves {
///         Some(at) if at > now => Outcome::Requeue { at, reason: format!("end_date={at}") },
///         _ => Outcome::Done,
///     }
/// }
///
/// assert_eq!(outcome(250), Outcome::Done);
/// assert!(matches!(outcome(451), Outcome::Retry { reason, .. } if reason.ends_with("451")));
/// let (may, june) = (parse_time("2026-05-01T00:00:00Z")?, parse_time("2026-06-01T00:00:00Z")?);
/// assert!(matches!(next(Some(june), may), Outcome::Requeue { at, .. } if at == june));
/// assert_eq!(next(Some(june), june), Outcome::Done);
/// # Ok::<(), hatchery::TimeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The event is handled to the end.
    Done,
    /// The event runs again at a later time, by the handler's wish. No attempt is spent: the event starts again with 0
    /// attempts. In a type that coalesces immediate events, two of one reference that are requeued to the same time become
    /// one: the newest runs.
    Requeue {
        /// The time of the next run, rounded up to milliseconds. A time in the past, or less than a second away,
        /// becomes one second from now.
        at: Timestamp,
        /// Why the event is requeued, for people.
        reason: String,
    },
    /// The run failed for a reason that may pass. The type's `on-failure` decides what follows. With `retry`,
    /// and after a round of `in-place`, an attempt is spent, and after `max-attempts` the event goes to dead-letter.
    Retry {
        /// The cause of the failure, for people.
        reason: String,
        /// The delay, rounded up to milliseconds, instead of the type's own. A delay longer than
        /// one round of the ladder (at least its `horizon`) is cut to that, with a warning in the log.
        after: Option<Duration>,
    },
    /// The event will never succeed. It goes to the dead-letter queue, where people find it with the reason.
    DeadLetter {
        /// Why the event cannot succeed, for people.
        reason: String,
    },
    /// A business rule ended the event. It is settled like `Done`, and logged with the reason.
    Discard {
        /// The business rule, for people.
        reason: String,
    },
    /// Something that every event of the type needs is away: a service, a database, a program. It is no fault of the event,
    /// so no attempt is spent, and the event waits for a moment. The worker starts no other event of the type until a run
    /// ends otherwise, and tries one event at a time meanwhile, with pauses of up to five seconds.
    Unavailable {
        /// The service or program that is away and why, for people.
        reason: String,
    },
}

/// The next step for a delivery whose run has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The worker runs the delivery again after a delay.
    Again {
        /// The delay.
        after: Duration,
        /// The failure of the run.
        failed: Failed,
    },
    /// A service or program that the handler needs is away: the run does not count, and the event waits.
    Wait {
        /// The service or program that is away and why, in one line.
        reason: String,
    },
    /// The decision is carried out, and then the delivery is acknowledged.
    Settle(Decision),
}

/// The end of a delivery: which copy of the event is published, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is left to do but to settle the event.
    Finish(Finish),
    /// The run failed, but no copy is published. The failure is logged and counted.
    Drop {
        /// The failure, for the log.
        reason: String,
    },
    /// A copy goes through one of the type's retry queues.
    Retry {
        /// The TTL of the retry queue.
        ttl: Ttl,
        /// The failure, for the copy's headers.
        failed: Failed,
    },
    /// A copy goes through the scheduler with a delay.
    RetryAfter {
        /// The delay.
        after: Duration,
        /// The failure, for the copy's headers.
        failed: Failed,
    },
    /// A copy goes through the scheduler and is due at a time.
    Requeue {
        /// The time at which the copy is due.
        at: Timestamp,
        /// The copy's header `reason`.
        reason: String,
    },
    /// A copy goes to dead-letter, with this failure in its headers.
    DeadLetter(Failed),
    /// The event expired at this time, and a copy goes to dead-letter, with this failure in its headers.
    Expire(Timestamp, Failed),
}

/// Why nothing is left to do but to settle an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The event is handled to its end.
    Done,
    /// The handler has ended the event by a business rule.
    Discard {
        /// The business rule, in one line.
        reason: String,
    },
    /// The event was cancelled while it ran.
    Cancelled,
    /// The event did not run, because it expired at this time.
    Expire(Timestamp),
    /// The event did not run, because its schedule does not want it.
    Skip,
}

/// The failure of an event, as the headers of its copy show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Failed attempts so far, this one included if it counts.
    pub attempts: u32,
    /// The header `reason`: why the copy is in its queue, for people, in one line.
    pub reason: String,
    /// The time and the text of the failure, for people, in one line.
    pub failure: String,
}

impl Failed {
    /// Returns the text of the failure, without its time.
    #[must_use]
    pub fn error(&self) -> &str {
        self.failure.split_once(' ').map_or("", |(_, error)| error)
    }
}

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ran<'a> {
    /// The event's id. The jitter of a delay is computed from it.
    pub id: &'a str,
    /// Failed attempts before this run.
    pub attempts: u32,
    /// Failed runs of this delivery in this worker, before this run.
    pub tries: u32,
    /// The time at which the run ended.
    pub now: Timestamp,
}

/// Cuts a retry's delay to `longest`, the longest that the ladder makes in one round. Returns the delay that was asked
/// for if it was cut. A delay that a service asks for by mistake (`Retry-After: 99999999999`) must not hide its events
/// for years. A requeue is not cut: its date is the handler's decision, and before that date the event would be early.
pub fn bound(outcome: &mut Outcome, longest: Duration) -> Option<Duration> {
    match outcome {
        Outcome::Retry { after: Some(after), .. } if *after > longest => Some(std::mem::replace(after, longest)),
        _ => None,
    }
}

/// Returns how far away the date of a requeue is, if that is more than `longest`, the longest delay that the ladder
/// makes in one round. Such a date may be a mistake, but it may also be meant.
#[must_use]
pub fn beyond(outcome: &Outcome, now: Timestamp, longest: Duration) -> Option<Duration> {
    match outcome {
        Outcome::Requeue { at, .. } => Some(time::until(now, *at)).filter(|wait| *wait > longest),
        _ => None,
    }
}

/// Decides what follows a run.
#[must_use]
pub fn decide(outcome: Outcome, ran: Ran<'_>, on_failure: OnFailure, retry: &Retry) -> Next {
    Next::Settle(match outcome {
        Outcome::Done => Decision::Finish(Finish::Done),
        Outcome::Discard { reason } => Decision::Finish(Finish::Discard { reason: one_line(&reason) }),
        Outcome::Requeue { at, reason } => Decision::Requeue { at, reason: one_line(&reason) },
        Outcome::DeadLetter { reason } => {
            let error = one_line(&reason);
            let reason = format!("dead-letter: {error}");
            Decision::DeadLetter(Failed { attempts: ran.attempts, reason, failure: dated(ran.now, &error) })
        }
        Outcome::Unavailable { reason } => return Next::Wait { reason: one_line(&reason) },
        Outcome::Retry { reason, after } => return after_failure(&one_line(&reason), after, ran, on_failure, retry),
    })
}

fn after_failure(error: &str, after: Option<Duration>, ran: Ran<'_>, on_failure: OnFailure, retry: &Retry) -> Next {
    let attempts = ran.attempts.saturating_add(1);
    let tries = ran.tries.saturating_add(1);
    let rounds =
        if matches!(on_failure, OnFailure::InPlace { .. }) { format!("tries={tries} ") } else { String::new() };
    let failed_at = time::millis_text(ran.now);
    let failed = |what: &str| Failed {
        attempts,
        reason: format!("{what}: attempt={attempts} {rounds}failed_at={failed_at} error=\"{error}\""),
        failure: dated(ran.now, error),
    };
    let delay = delay(retry, attempts);
    let longer = |ttl: Ttl| longer(ttl.as_duration(), retry.jitter, ran.id, attempts);
    match on_failure {
        OnFailure::Drop => return Next::Settle(Decision::Drop { reason: failed("drop").reason }),
        OnFailure::Block => {
            let after = after.or(delay.map(longer)).unwrap_or_default();
            return Next::Again { after, failed: failed("block") };
        }
        // A round of tries in place is one attempt. A delay that the handler asks for ends the round, because a try
        // before that delay would fail again.
        OnFailure::InPlace { tries: most, delay } if after.is_none() && tries < most => {
            return Next::Again { after: delay, failed: Failed { attempts: ran.attempts, ..failed("in-place") } };
        }
        OnFailure::InPlace { .. } | OnFailure::Retry => {}
    }
    Next::Settle(match (after, delay) {
        _ if attempts >= retry.max_attempts => Decision::DeadLetter(failed("given up")),
        (Some(after), _) => Decision::RetryAfter { after, failed: failed("retry") },
        (None, Some(ttl)) if retry.jitter == 0 => Decision::Retry { ttl, failed: failed("retry") },
        (None, Some(ttl)) => Decision::RetryAfter { after: longer(ttl), failed: failed("retry") },
        (None, None) => Decision::DeadLetter(failed("given up")),
    })
}

/// Decides whether an event goes to dead-letter because it was started too often and never settled. Returns `None` if the
/// event may run again.
///
/// `crashes` are the starts that the register has counted: mostly the worker died, but a run may also have ended while Redis was away,
/// and its worker was stopped before it could say so. `back` are redeliveries before the event had an id: each may
/// have been a crash, so each counts, but they alone are no proof: an event is given up only after it was started alone and not
/// settled. So an event starts at most `limit` times, or four times if the limit is 3 and a redelivery before it had
/// an id counts.
#[must_use]
pub fn crashed(crashes: u32, back: u32, attempts: u32, limit: u32, now: Timestamp) -> Option<Decision> {
    let ran_alone = crashes > SUSPECT;
    if crashes < limit && !(ran_alone && crashes.saturating_add(back) >= limit) {
        return None;
    }
    let times = match back {
        0 => None,
        1 => Some("once".to_owned()),
        _ => Some(format!("{back} times")),
    };
    let redelivered =
        times.map_or_else(String::new, |times| format!(", and it was redelivered {times} before it had an id"));
    let error = format!("it was started {crashes} times and never settled{redelivered}");
    Some(Decision::DeadLetter(Failed { attempts, reason: format!("crash: {error}"), failure: dated(now, &error) }))
}

/// Decides what becomes of an event that expired at this time, before it started.
#[must_use]
pub fn expired(at: Timestamp, on_expiry: OnExpiry, now: Timestamp) -> Decision {
    match on_expiry {
        OnExpiry::Discard => Decision::Finish(Finish::Expire(at)),
        OnExpiry::DeadLetter => {
            let reason = format!("expired at {}, before it started", time::millis_text(at));
            // Without the time, so that dead letters are grouped.
            let failure = dated(now, "expired before it started");
            Decision::Expire(at, Failed { attempts: 0, reason, failure })
        }
    }
}

/// The number of deaths after which an event is a suspect and runs alone: any other event of the worker may have caused
/// the first two. Without the register the returns of the delivery are counted instead of deaths, because RabbitMQ
/// counts a crash against every delivery that the worker held.
pub const SUSPECT: u32 = 2;

/// The number of returns after which a delivery of a type with the register is published again, so that RabbitMQ counts
/// from 0. It is half the delivery limit, so that a copy can be published in time even while workers die.
pub const OFTEN: u32 = 50;

/// Decides whether an event without the register goes to dead-letter because its delivery came back too often when it ran
/// alone. Returns `None` if the event may run again. The [`SUSPECT`] returns before it ran alone count too, so an event
/// starts at most `limit` times.
#[must_use]
pub fn crashed_alone(returns: u32, attempts: u32, limit: u32, now: Timestamp) -> Option<Decision> {
    if returns.saturating_add(SUSPECT) < limit {
        return None;
    }
    let times = if returns == 1 { "once".to_owned() } else { format!("{returns} times") };
    let error = format!("it came back {times} when it ran alone, and {SUSPECT} times before");
    Some(Decision::DeadLetter(Failed { attempts, reason: format!("crash: {error}"), failure: dated(now, &error) }))
}

/// Returns the header `reason` of an event that waits to run alone.
#[must_use]
pub fn suspect(returns: u32) -> String {
    format!("crash: its delivery came back {returns} times; its worker may have died while it ran, so it runs alone")
}

/// Formats a failure for the headers `first_failure` and `last_failure`.
fn dated(time: Timestamp, error: &str) -> String {
    format!("{} {error}", time::millis_text(time))
}

/// Returns the delay after this many failures. Beyond the end of the list the last delay repeats. Returns `None` if the
/// list is empty.
fn delay(retry: &Retry, failures: u32) -> Option<Ttl> {
    let last = retry.delays.len().checked_sub(1)?;
    let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
    retry.delays.get(index.min(last)).copied()
}

/// Adds jitter to a delay: up to `jitter` thousandths of it, never less than the delay. The jitter depends on the
/// event's id and the number of failures, so that events that failed together do not come back together. It is a hash
/// and not a random number, so that a decision that is made again after a crash is the same.
fn longer(delay: Duration, jitter: u16, id: &str, failures: u32) -> Duration {
    // A share of 2^32.
    let share = u128::from(xxh3_64_with_seed(id.as_bytes(), failures.into()) >> 32);
    let more = (delay.as_millis() * u128::from(jitter) * share / 1_000) >> 32;
    delay + Duration::from_millis(u64::try_from(more).unwrap_or(u64::MAX))
}

/// Joins the words of a reason with single spaces and removes its control characters. The management UI shows a header
/// in one line, and a terminal that shows the log would obey an escape sequence.
pub(crate) fn one_line(reason: &str) -> String {
    let words = reason.split(|c: char| c.is_whitespace() || c.is_control());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;

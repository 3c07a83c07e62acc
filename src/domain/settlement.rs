//! What follows from a handler's answer: a pure function of (outcome, attempts, policy).
//!
//! Decide, then act: `settle.rs` in `flow` carries out what stands here.

use std::time::Duration;

use jiff::Timestamp;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    spec::{OnFailure, Retry},
    time,
    ttl::Ttl,
};

/// A handler's answer: what is to follow. There is no other.
///
/// An error instead of an answer, a panic, and no answer within `handler-timeout` are a [`Retry`](Self::Retry) with
/// what they say as the reason. A reason is for people: in one line it stands on the message in the management UI and
/// in the log.
///
/// What an answer means is best decided by a function of its own, which a test can ask:
///
/// ```
/// use std::time::Duration;
/// use hatchery::{Outcome, jiff::Timestamp, parse_time};
///
/// /// What follows an answer of the mail server.
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
/// /// An import of somebody who leaves comes again on their last day.
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
    /// Handled to the end.
    Done,
    /// Again at this time, by the handler's wish. No attempt is spent: it begins afresh, with none. Of immediate events
    /// of a reference that are put off to the same time the newest runs, where the type coalesces them.
    Requeue {
        /// When, in milliseconds, rounded up. A time that is past, or less than a second away, is in a second.
        at: Timestamp,
        /// Why, for people.
        reason: String,
    },
    /// A passing failure: what follows it is `on-failure` of the type. An attempt is spent, and after `max-attempts` of
    /// them the event goes to dead-letter.
    Retry {
        /// What failed.
        reason: String,
        /// After this long, in milliseconds, rounded up, instead of the type's own delay. More than the ladder's `horizon` is
        /// cut to that, with a warning in the log.
        after: Option<Duration>,
    },
    /// It will never work: to the dead-letter queue, where people find it with the reason.
    DeadLetter {
        /// Why.
        reason: String,
    },
    /// A business rule ended it: as good as done, and logged with the reason.
    Discard {
        /// Which.
        reason: String,
    },
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The same delivery again, in this worker, after this long.
    Again {
        /// How long.
        after: Duration,
        /// The failure so far.
        failed: Failed,
    },
    /// This is done with the event, and then the delivery is acknowledged.
    Settle(Decision),
}

/// What is done with the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing follows.
    Finish,
    /// Nothing follows, although it failed: it is logged and counted.
    Drop {
        /// Why, for the log.
        reason: String,
    },
    /// A copy through the type's retry queue of this TTL.
    Retry {
        /// Which queue.
        ttl: Ttl,
        /// What the copy says.
        failed: Failed,
    },
    /// A copy through the scheduler, after this long.
    RetryAfter {
        /// How long.
        after: Duration,
        /// What the copy says.
        failed: Failed,
    },
    /// A follow-up at this time.
    Requeue {
        /// When.
        at: Timestamp,
        /// The copy's header.
        reason: String,
    },
    /// A copy to dead-letter, which says this.
    DeadLetter(Failed),
}

/// What is known of an event that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// How often, this time included.
    pub attempts: u32,
    /// Why it will be where it goes, for people: one line.
    pub reason: String,
    /// When it failed and how, for people: one line.
    pub failure: String,
}

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ran<'a> {
    /// The event. Delays with jitter differ by it.
    pub id: &'a str,
    /// How often it had failed before.
    pub attempts: u32,
    /// How often it had failed before in this worker, since it was delivered.
    pub tries: u32,
    /// When it ended.
    pub now: Timestamp,
}

/// Cuts a retry's delay to the longest that the ladder takes in one round, and returns what was asked for. A failure passes:
/// what a service asks for by mistake (`Retry-After: 99999999999`) must not put its events out of sight for years. A
/// requeue is not cut, because its date is the handler's business, and before it the event would be early.
pub fn bound(outcome: &mut Outcome, longest: Duration) -> Option<Duration> {
    match outcome {
        Outcome::Retry { after: Some(after), .. } if *after > longest => Some(std::mem::replace(after, longest)),
        _ => None,
    }
}

/// How far away the date of a requeue is, if that is further than the ladder takes in one round. Such a date may be meant, and may be a slip.
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
        Outcome::Done | Outcome::Discard { .. } => Decision::Finish,
        Outcome::Requeue { at, reason } => Decision::Requeue { at, reason: one_line(&reason) },
        Outcome::DeadLetter { reason } => {
            let error = one_line(&reason);
            let reason = format!("dead-letter: {error}");
            Decision::DeadLetter(Failed { attempts: ran.attempts, reason, failure: dated(ran.now, &error) })
        }
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
        // A round is one attempt, however many tries it takes; a delay that the handler asks for ends it, for a try sooner
        // than asked for would be for nothing.
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

/// The decision about an event whose worker died so often while it ran, as the register says, if that is too often.
///
/// `back`: redeliveries before the event had an id; each may have been a crash, so each counts, but alone they prove nothing. There
/// are never more than `limit` starts in all, and the event is put aside only once its worker has died while it ran alone. With
/// the lowest limit of 3 that takes a fourth start.
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
    let error = format!("its worker died {crashes} times while it ran{redelivered}");
    Some(Decision::DeadLetter(Failed { attempts, reason: format!("crash: {error}"), failure: dated(now, &error) }))
}

/// Deaths that make a suspect of an event: the first two may have been anybody's. Where no register knows what ran they are the
/// returns of its delivery, for RabbitMQ counts a crash against everything that the worker held.
pub const SUSPECT: u32 = 2;

/// Returns of a delivery after which it is published again where the register knows what ran: half of what RabbitMQ allows,
/// so that there is time enough to do so also while workers die.
pub const OFTEN: u32 = 50;

/// The decision about an event whose worker died so often while it ran alone, if that is too often. It had come back as
/// often as makes a suspect before, so there are never more than `limit` starts in all.
#[must_use]
pub fn crashed_alone(deaths: u32, attempts: u32, limit: u32, now: Timestamp) -> Option<Decision> {
    if deaths.saturating_add(SUSPECT) < limit {
        return None;
    }
    let times = if deaths == 1 { "once".to_owned() } else { format!("{deaths} times") };
    let error =
        format!("its worker died {times} while it ran alone; its delivery had come back {SUSPECT} times before");
    Some(Decision::DeadLetter(Failed { attempts, reason: format!("crash: {error}"), failure: dated(now, &error) }))
}

/// What is said of an event that waits to run alone.
#[must_use]
pub fn suspect(returns: u32) -> String {
    format!("crash: its delivery came back {returns} times; its worker may have died while it ran, so it runs alone")
}

/// A failure as a header says it.
fn dated(time: Timestamp, error: &str) -> String {
    format!("{} {error}", time::millis_text(time))
}

/// The delay after this many failures; beyond the list the last one repeats. None where there is no list.
fn delay(retry: &Retry, failures: u32) -> Option<Ttl> {
    let last = retry.delays.len().checked_sub(1)?;
    let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
    retry.delays.get(index.min(last)).copied()
}

/// The delay, and up to so many thousandths of it more: never early. How much more is the event's own, and another one at
/// each failure, so that events that failed together do not come back together. Made from the id instead of thrown as
/// dice, it is the same when the decision is made again after a crash.
fn longer(delay: Duration, jitter: u16, id: &str, failures: u32) -> Duration {
    // From 0 up to 1, in 2^32 steps.
    let share = u128::from(xxh3_64_with_seed(id.as_bytes(), failures.into()) >> 32);
    let more = (delay.as_millis() * u128::from(jitter) * share / 1_000) >> 32;
    delay + Duration::from_millis(u64::try_from(more).unwrap_or(u64::MAX))
}

/// The management UI shows a header in one line, and a log goes to a terminal, where an escape sequence would act.
pub(crate) fn one_line(reason: &str) -> String {
    let words = reason.split(|c: char| c.is_whitespace() || c.is_control());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;

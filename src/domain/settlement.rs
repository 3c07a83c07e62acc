//! What follows from a handler's answer: a pure function of (outcome, attempts, policy).
//!
//! Decide, then act: [`crate::flow::settle`] carries out what stands here.

use std::time::Duration;

use jiff::Timestamp;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    spec::{OnFailure, Retry},
    ttl::Ttl,
    wire::millis_text,
};

/// A handler's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Handled to the end.
    Done,
    /// Again at this time, by the handler's wish; no attempt is spent.
    Requeue {
        /// When.
        at: Timestamp,
        /// Why, for people.
        reason: String,
    },
    /// A passing failure: again after the next delay of the type, or after this one.
    Retry {
        /// What failed.
        reason: String,
        /// Instead of the type's own delay.
        after: Option<Duration>,
    },
    /// It will never work.
    DeadLetter {
        /// Why.
        reason: String,
    },
    /// A business rule ended it: as good as done.
    Discard {
        /// Which.
        reason: String,
    },
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
        /// The copy's header.
        attempts: u32,
        /// The copy's header.
        reason: String,
    },
    /// A copy through the scheduler, after this long.
    RetryAfter {
        /// How long.
        after: Duration,
        /// The copy's header.
        attempts: u32,
        /// The copy's header.
        reason: String,
    },
    /// A follow-up at this time.
    Requeue {
        /// When.
        at: Timestamp,
        /// The copy's header.
        reason: String,
    },
    /// A copy to dead-letter.
    DeadLetter {
        /// The copy's header.
        attempts: u32,
        /// The copy's header.
        reason: String,
    },
}

/// A run that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ran<'a> {
    /// The event. Delays with jitter differ by it.
    pub id: &'a str,
    /// How often it had failed before.
    pub attempts: u32,
    /// When it ended.
    pub now: Timestamp,
}

/// Decides what follows a run.
#[must_use]
pub fn decide(outcome: Outcome, ran: Ran<'_>, on_failure: OnFailure, retry: &Retry) -> Decision {
    let Ran { id, attempts, now } = ran;
    match outcome {
        Outcome::Done | Outcome::Discard { .. } => Decision::Finish,
        Outcome::Requeue { at, reason } => Decision::Requeue { at, reason },
        Outcome::DeadLetter { reason } => {
            Decision::DeadLetter { attempts, reason: format!("dead-letter: {}", one_line(&reason)) }
        }
        Outcome::Retry { reason, after } => {
            let attempts = attempts.saturating_add(1);
            let failed = format!("attempt={attempts} failed_at={} error=\"{}\"", millis_text(now), one_line(&reason));
            if on_failure == OnFailure::Drop {
                return Decision::Drop { reason: format!("drop: {failed}") };
            }
            if attempts >= retry.max_attempts {
                return Decision::DeadLetter { attempts, reason: format!("given up: {failed}") };
            }
            let reason = format!("retry: {failed}");
            let ttl = delay(retry, attempts);
            match after {
                None if retry.jitter == 0 => Decision::Retry { ttl, attempts, reason },
                after => {
                    let after = after.unwrap_or_else(|| longer(ttl.as_duration(), retry.jitter, id, attempts));
                    Decision::RetryAfter { after, attempts, reason }
                }
            }
        }
    }
}

/// The decision about an event whose worker died each time it ran.
#[must_use]
pub fn crashed(crashes: u32, attempts: u32) -> Decision {
    Decision::DeadLetter { attempts, reason: format!("crash: its worker died {crashes} times while it ran") }
}

/// The delay after this many failures; beyond the list the last one repeats.
fn delay(retry: &Retry, failures: u32) -> Ttl {
    let last = retry.delays.len() - 1;
    let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
    retry.delays[index.min(last)]
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
fn one_line(reason: &str) -> String {
    let words = reason.split(|c: char| c.is_whitespace() || c.is_control());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn retry() -> Retry {
        let delays = ["1s", "2s", "3s"].map(|text| text.parse().expect("a TTL")).to_vec();
        Retry { delays, max_attempts: 5, jitter: 0 }
    }

    fn now() -> Timestamp {
        "2026-06-01T09:00:00Z".parse().expect("a time")
    }

    fn ran(attempts: u32) -> Ran<'static> {
        Ran { id: "id-1", attempts, now: now() }
    }

    fn failure() -> Outcome {
        Outcome::Retry { reason: "connection\n\u{1b} refused".into(), after: None }
    }

    #[rstest]
    #[case::first_failure(0, Some("1s"))]
    #[case::second(1, Some("2s"))]
    #[case::third(2, Some("3s"))]
    #[case::the_last_delay_repeats(3, Some("3s"))]
    #[case::given_up(4, None)]
    #[case::a_foreign_number_of_attempts(u32::MAX, None)]
    fn a_failure_waits_longer_each_time(#[case] attempts: u32, #[case] expected: Option<&str>) {
        match (decide(failure(), ran(attempts), OnFailure::Retry, &retry()), expected) {
            (Decision::Retry { ttl, attempts: next, reason }, Some(expected)) => {
                assert_eq!((ttl.to_string().as_str(), next), (expected, attempts + 1));
                let n = attempts + 1;
                let failed = format!(r#"attempt={n} failed_at=2026-06-01T09:00:00.000Z error="connection refused""#);
                assert_eq!(reason, format!("retry: {failed}"));
            }
            (Decision::DeadLetter { attempts: next, reason }, None) => {
                assert_eq!(next, attempts.saturating_add(1));
                assert!(reason.starts_with("given up: attempt="), "{reason}");
            }
            (decision, _) => panic!("{decision:?}"),
        }
    }

    #[test]
    fn a_handler_may_choose_the_delay_but_not_the_number_of_attempts() {
        let after = Some(Duration::from_secs(30));
        let outcome = Outcome::Retry { reason: "busy".into(), after };
        let decision = decide(outcome.clone(), ran(0), OnFailure::Retry, &retry());
        assert!(matches!(decision, Decision::RetryAfter { after: a, attempts: 1, .. } if Some(a) == after));
        assert!(matches!(
            decide(outcome, ran(4), OnFailure::Retry, &retry()),
            Decision::DeadLetter { attempts: 5, .. }
        ));
    }

    #[test]
    fn one_attempt_means_no_retry() {
        let retry = Retry { max_attempts: 1, ..retry() };
        assert!(matches!(
            decide(failure(), ran(0), OnFailure::Retry, &retry),
            Decision::DeadLetter { attempts: 1, .. }
        ));
    }

    #[test]
    fn what_is_no_failure_spends_no_attempt() {
        let at = now();
        let requeue = Outcome::Requeue { at, reason: "next-change".into() };
        assert_eq!(
            decide(requeue, ran(3), OnFailure::Retry, &retry()),
            Decision::Requeue { at, reason: "next-change".into() }
        );
        let dead = Outcome::DeadLetter { reason: "no such employee".into() };
        let expected = Decision::DeadLetter { attempts: 3, reason: "dead-letter: no such employee".into() };
        assert_eq!(decide(dead, ran(3), OnFailure::Retry, &retry()), expected);
        assert_eq!(decide(Outcome::Done, ran(3), OnFailure::Retry, &retry()), Decision::Finish);
        assert_eq!(
            decide(Outcome::Discard { reason: "left".into() }, ran(3), OnFailure::Retry, &retry()),
            Decision::Finish
        );
    }

    #[test]
    fn a_failure_is_dropped_where_the_type_says_so_and_nothing_else_is() {
        let decided = |outcome| decide(outcome, ran(0), OnFailure::Drop, &retry());
        let Decision::Drop { reason } = decided(failure()) else { panic!("not dropped") };
        assert!(reason.starts_with("drop: attempt=1 failed_at="), "{reason}");
        let after = Some(Duration::from_secs(30));
        assert!(matches!(decided(Outcome::Retry { reason: "busy".into(), after }), Decision::Drop { .. }));
        assert_eq!(decided(Outcome::Done), Decision::Finish);
        // The handler says that people should see it.
        assert!(matches!(decided(Outcome::DeadLetter { reason: "never".into() }), Decision::DeadLetter { .. }));
        let requeue = Outcome::Requeue { at: now(), reason: "next-change".into() };
        assert!(matches!(decided(requeue), Decision::Requeue { .. }));
    }

    #[test]
    fn delays_with_jitter_are_spread_and_never_shorter() {
        let retry = Retry { jitter: 200, ..retry() };
        let after = |id: &str, attempts| match decide(failure(), Ran { id, ..ran(attempts) }, OnFailure::Retry, &retry)
        {
            Decision::RetryAfter { after, .. } => after.as_millis(),
            decision => panic!("{decision:?}"),
        };
        let all: Vec<u128> = (0..1_000).map(|n| after(&n.to_string(), 0)).collect();
        assert!(all.iter().all(|millis| (1_000..=1_200).contains(millis)), "{all:?}");
        let quarter = |n: u128| all.iter().filter(|millis| (1_000 + 50 * n..1_050 + 50 * n).contains(*millis)).count();
        assert!((0..4).all(|n| (200..300).contains(&quarter(n))), "{:?}", (0..4).map(quarter).collect::<Vec<_>>());
        assert_eq!(after("one", 0), after("one", 0), "the same when it is decided again");
        assert_ne!(after("one", 2) - 3_000, after("one", 3) - 3_000, "another one at each failure");
        // What the handler asks for is what it gets.
        let exactly = Some(Duration::from_secs(30));
        let decision =
            decide(Outcome::Retry { reason: "busy".into(), after: exactly }, ran(0), OnFailure::Retry, &retry);
        assert!(matches!(decision, Decision::RetryAfter { after, .. } if Some(after) == exactly));
    }
}

//! What follows from a handler's answer: a pure function of (outcome, attempts, policy).
//!
//! Decide, then act: [`crate::flow::settle`] carries out what stands here.

use std::time::Duration;

use jiff::Timestamp;

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

/// Decides. `attempts` is how often the event had failed before this run.
#[must_use]
pub fn decide(outcome: Outcome, attempts: u32, on_failure: OnFailure, retry: &Retry, now: Timestamp) -> Decision {
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
            match after {
                Some(after) => Decision::RetryAfter { after, attempts, reason },
                None => Decision::Retry { ttl: delay(retry, attempts), attempts, reason },
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
        Retry { delays, max_attempts: 5 }
    }

    fn now() -> Timestamp {
        "2026-06-01T09:00:00Z".parse().expect("a time")
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
        match (decide(failure(), attempts, OnFailure::Retry, &retry(), now()), expected) {
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
        let decision = decide(outcome.clone(), 0, OnFailure::Retry, &retry(), now());
        assert!(matches!(decision, Decision::RetryAfter { after: a, attempts: 1, .. } if Some(a) == after));
        assert!(matches!(
            decide(outcome, 4, OnFailure::Retry, &retry(), now()),
            Decision::DeadLetter { attempts: 5, .. }
        ));
    }

    #[test]
    fn one_attempt_means_no_retry() {
        let retry = Retry { max_attempts: 1, ..retry() };
        assert!(matches!(
            decide(failure(), 0, OnFailure::Retry, &retry, now()),
            Decision::DeadLetter { attempts: 1, .. }
        ));
    }

    #[test]
    fn what_is_no_failure_spends_no_attempt() {
        let at = now();
        let requeue = Outcome::Requeue { at, reason: "next-change".into() };
        assert_eq!(
            decide(requeue, 3, OnFailure::Retry, &retry(), at),
            Decision::Requeue { at, reason: "next-change".into() }
        );
        let dead = Outcome::DeadLetter { reason: "no such employee".into() };
        let expected = Decision::DeadLetter { attempts: 3, reason: "dead-letter: no such employee".into() };
        assert_eq!(decide(dead, 3, OnFailure::Retry, &retry(), at), expected);
        assert_eq!(decide(Outcome::Done, 3, OnFailure::Retry, &retry(), at), Decision::Finish);
        assert_eq!(
            decide(Outcome::Discard { reason: "left".into() }, 3, OnFailure::Retry, &retry(), at),
            Decision::Finish
        );
    }

    #[test]
    fn a_failure_is_dropped_where_the_type_says_so_and_nothing_else_is() {
        let decided = |outcome| decide(outcome, 0, OnFailure::Drop, &retry(), now());
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
}

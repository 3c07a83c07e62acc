//! Tests every `on-failure` strategy, case by case.

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
    Ran { id: "id-1", attempts, tries: 0, now: now() }
}

/// Returns the decision that settles the delivery.
fn settled(outcome: Outcome, ran: Ran<'_>, on_failure: OnFailure, retry: &Retry) -> Decision {
    match decide(outcome, ran, on_failure, retry) {
        Next::Settle(decision) => decision,
        again @ (Next::Again { .. } | Next::Wait { .. }) => panic!("{again:?}"),
    }
}

#[test]
fn a_retry_is_cut_to_the_horizon_and_a_requeue_is_not() {
    let (hour, day) = (Duration::from_hours(1), Duration::from_hours(24));
    let retry = |after| Outcome::Retry { reason: "busy".into(), after };
    for (mut outcome, expected, asked) in [
        (retry(Some(day)), retry(Some(hour)), Some(day)),
        (retry(Some(hour)), retry(Some(hour)), None),
        (retry(None), retry(None), None),
    ] {
        assert_eq!((bound(&mut outcome, hour), outcome), (asked, expected));
    }
    let requeue = Outcome::Requeue { at: Timestamp::MAX, reason: "end_date".into() };
    let mut outcome = requeue.clone();
    assert_eq!((bound(&mut outcome, hour), outcome), (None, requeue));
}

#[rstest]
#[case(OnFailure::Retry)]
#[case(OnFailure::InPlace { tries: 3, delay: Duration::from_secs(1) })]
#[case(OnFailure::Block)]
#[case(OnFailure::Drop)]
fn an_unavailable_handler_spends_no_attempt(#[case] on_failure: OnFailure) {
    let ran = Ran { id: "id-1", attempts: 2, tries: 0, now: now() };
    let next = decide(Outcome::unavailable("connection\nrefused"), ran, on_failure, &retry());
    assert_eq!(next, Next::Wait { reason: "connection refused".to_owned() });
}

#[rstest]
#[case::in_time(Outcome::Requeue { at: now() + Duration::from_hours(1), reason: String::new() }, None)]
#[case::beyond(Outcome::Requeue { at: now() + Duration::from_hours(2), reason: String::new() }, Some(Duration::from_hours(2)))]
#[case::past(Outcome::Requeue { at: Timestamp::UNIX_EPOCH, reason: String::new() }, None)]
#[case::no_requeue(Outcome::Done, None)]
fn a_requeue_beyond_the_horizon_is_reported(#[case] outcome: Outcome, #[case] expected: Option<Duration>) {
    assert_eq!(beyond(&outcome, now(), Duration::from_hours(1)), expected);
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
    match (settled(failure(), ran(attempts), OnFailure::Retry, &retry()), expected) {
        (Decision::Retry { ttl, failed: Failed { attempts: next, reason, failure } }, Some(expected)) => {
            assert_eq!((ttl.to_string().as_str(), next), (expected, attempts + 1));
            assert_eq!(failure, "2026-06-01T09:00:00.000Z connection refused");
            let n = attempts + 1;
            let failed = format!(r#"attempt={n} failed_at=2026-06-01T09:00:00.000Z error="connection refused""#);
            assert_eq!(reason, format!("retry: {failed}"));
        }
        (Decision::DeadLetter(Failed { attempts: next, reason, .. }), None) => {
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
    let decision = settled(outcome.clone(), ran(0), OnFailure::Retry, &retry());
    assert!(matches!(decision, Decision::RetryAfter { after: a, failed } if Some(a) == after && failed.attempts == 1));
    assert!(matches!(
        settled(outcome, ran(4), OnFailure::Retry, &retry()),
        Decision::DeadLetter(Failed { attempts: 5, .. })
    ));
}

#[test]
fn an_expired_event_is_discarded_or_dead_lettered_with_its_expiry() {
    let at = now() - Duration::from_mins(1);
    assert_eq!(expired(at, OnExpiry::Discard, now()), Decision::Finish(Finish::Expire(at)));
    let reason = "expired at 2026-06-01T08:59:00.000Z, before it started".to_owned();
    let failure = "2026-06-01T09:00:00.000Z expired before it started".to_owned();
    let letter = Decision::Expire(at, Failed { attempts: 0, reason, failure });
    assert_eq!(expired(at, OnExpiry::DeadLetter, now()), letter);
}

#[test]
fn one_attempt_means_no_retry() {
    let retry = Retry { max_attempts: 1, ..retry() };
    assert!(matches!(
        settled(failure(), ran(0), OnFailure::Retry, &retry),
        Decision::DeadLetter(Failed { attempts: 1, .. })
    ));
}

#[test]
fn an_outcome_that_is_no_failure_spends_no_attempt() {
    let at = now();
    let requeue = Outcome::Requeue { at, reason: "next-change".into() };
    assert_eq!(
        settled(requeue, ran(3), OnFailure::Retry, &retry()),
        Decision::Requeue { at, reason: "next-change".into() }
    );
    let dead = Outcome::DeadLetter { reason: "no such employee".into() };
    let expected = Failed {
        attempts: 3,
        reason: "dead-letter: no such employee".into(),
        failure: "2026-06-01T09:00:00.000Z no such employee".into(),
    };
    assert_eq!(settled(dead, ran(3), OnFailure::Retry, &retry()), Decision::DeadLetter(expected));
    assert_eq!(settled(Outcome::Done, ran(3), OnFailure::Retry, &retry()), Decision::Finish(Finish::Done));
    assert_eq!(
        settled(Outcome::Discard { reason: "they\nleft".into() }, ran(3), OnFailure::Retry, &retry()),
        Decision::Finish(Finish::Discard { reason: "they left".into() })
    );
}

#[test]
fn a_type_with_on_failure_drop_drops_failures_and_nothing_else() {
    let decided = |outcome| settled(outcome, ran(0), OnFailure::Drop, &retry());
    let Decision::Drop { reason } = decided(failure()) else { panic!("not dropped") };
    assert!(reason.starts_with("drop: attempt=1 failed_at="), "{reason}");
    let after = Some(Duration::from_secs(30));
    assert!(matches!(decided(Outcome::Retry { reason: "busy".into(), after }), Decision::Drop { .. }));
    assert_eq!(decided(Outcome::Done), Decision::Finish(Finish::Done));
    // With `DeadLetter` the handler asks that people see the event.
    assert!(matches!(decided(Outcome::DeadLetter { reason: "never".into() }), Decision::DeadLetter(_)));
    let requeue = Outcome::Requeue { at: now(), reason: "next-change".into() };
    assert!(matches!(decided(requeue), Decision::Requeue { .. }));
}

#[test]
fn delays_with_jitter_are_spread_and_never_shorter() {
    let retry = Retry { jitter: 200, ..retry() };
    let after = |id: &str, attempts| match settled(failure(), Ran { id, ..ran(attempts) }, OnFailure::Retry, &retry) {
        Decision::RetryAfter { after, .. } => after.as_millis(),
        decision => panic!("{decision:?}"),
    };
    let all: Vec<u128> = (0..1_000).map(|n| after(&n.to_string(), 0)).collect();
    assert!(all.iter().all(|millis| (1_000..=1_200).contains(millis)), "{all:?}");
    let quarter = |n: u128| all.iter().filter(|millis| (1_000 + 50 * n..1_050 + 50 * n).contains(*millis)).count();
    assert!((0..4).all(|n| (200..300).contains(&quarter(n))), "{:?}", (0..4).map(quarter).collect::<Vec<_>>());
    assert_eq!(after("one", 0), after("one", 0), "the same when it is decided again");
    assert_ne!(after("one", 2) - 3_000, after("one", 3) - 3_000, "another one at each failure");
    // A delay that the handler asks for gets no jitter.
    let exactly = Some(Duration::from_secs(30));
    let decision = settled(Outcome::Retry { reason: "busy".into(), after: exactly }, ran(0), OnFailure::Retry, &retry);
    assert!(matches!(decision, Decision::RetryAfter { after, .. } if Some(after) == exactly));
}

#[test]
fn a_round_of_tries_in_place_is_one_attempt() {
    let in_place = OnFailure::InPlace { tries: 3, delay: Duration::from_millis(200) };
    for tries in [0, 1] {
        let next = decide(failure(), Ran { tries, ..ran(1) }, in_place, &retry());
        let Next::Again { after, failed } = next else { panic!("{next:?}") };
        assert_eq!((after, failed.attempts), (Duration::from_millis(200), 1));
    }
    let round = Ran { tries: 2, ..ran(1) };
    let Decision::Retry { ttl, failed } = settled(failure(), round, in_place, &retry()) else { panic!("no retry") };
    assert_eq!((ttl.to_string().as_str(), failed.attempts), ("2s", 2));
    assert!(failed.reason.starts_with("retry: attempt=2 tries=3 failed_at="), "{}", failed.reason);
    // The last round ends in dead-letter, and so does every round of a type without retry queues.
    let given_up = |ran, retry: &Retry| matches!(settled(failure(), ran, in_place, retry), Decision::DeadLetter(_));
    assert!(given_up(Ran { tries: 2, ..ran(4) }, &retry()));
    assert!(given_up(Ran { tries: 2, ..ran(0) }, &Retry { delays: Vec::new(), ..retry() }));
}

#[test]
fn a_delay_that_the_handler_asks_for_ends_a_round() {
    let in_place = OnFailure::InPlace { tries: 3, delay: Duration::from_millis(200) };
    let after = Some(Duration::from_secs(30));
    let busy = || Outcome::Retry { reason: "busy".into(), after };
    for delays in [retry().delays, Vec::new()] {
        let retry = Retry { delays, ..retry() };
        let decision = settled(busy(), ran(0), in_place, &retry);
        assert!(matches!(decision, Decision::RetryAfter { after: a, .. } if Some(a) == after), "{decision:?}");
        assert!(matches!(settled(busy(), ran(4), in_place, &retry), Decision::DeadLetter(_)));
    }
}

#[rstest]
#[case(0, "1s")]
#[case(2, "3s")]
#[case(1_000_000, "3s")]
fn a_type_with_on_failure_block_tries_without_end(#[case] attempts: u32, #[case] expected: &str) {
    let next = decide(failure(), ran(attempts), OnFailure::Block, &retry());
    let Next::Again { after, failed } = next else { panic!("{next:?}") };
    assert_eq!(after, expected.parse::<Ttl>().expect("a TTL").as_duration());
    assert_eq!(failed.attempts, attempts + 1);
    let exactly = Some(Duration::from_secs(30));
    let next = decide(Outcome::Retry { reason: "busy".into(), after: exactly }, ran(0), OnFailure::Block, &retry());
    assert!(matches!(next, Next::Again { after, .. } if Some(after) == exactly), "{next:?}");
    // The other outcomes of the handler end the tries.
    let dead = Outcome::DeadLetter { reason: "never".into() };
    assert!(matches!(settled(dead, ran(attempts), OnFailure::Block, &retry()), Decision::DeadLetter(_)));
    assert_eq!(settled(Outcome::Done, ran(attempts), OnFailure::Block, &retry()), Decision::Finish(Finish::Done));
}

#[rstest]
#[case::never_ran_alone(0, 3, None)]
#[case::the_lowest_limit(1, 3, Some("once"))]
#[case::below(2, 5, None)]
#[case::at_the_limit(3, 5, Some("3 times"))]
#[case::a_lower_limit_than_before(9, 5, Some("9 times"))]
#[case::a_foreign_count(u32::MAX, 5, Some("4294967295 times"))]
fn the_first_two_returns_and_those_from_running_alone_count_towards_the_limit(
    #[case] returns: u32,
    #[case] limit: u32,
    #[case] times: Option<&str>,
) {
    let expected = times.map(|times| {
        let error = format!("it came back {times} when it ran alone, and 2 times before");
        Decision::DeadLetter(Failed {
            attempts: 1,
            reason: format!("crash: {error}"),
            failure: format!("2026-06-01T09:00:00.000Z {error}"),
        })
    });
    assert_eq!(crashed_alone(returns, 1, limit, now()), expected);
}

#[rstest]
#[case::below_the_limit(4, 0, 5, None)]
#[case::at_the_limit(5, 0, 5, Some("it was started 5 times and never settled"))]
#[case::the_return_counts(
    4,
    1,
    5,
    Some("it was started 4 times and never settled, and it was redelivered once before it had an id")
)]
#[case::the_return_is_one_death(3, 1, 5, None)]
#[case::the_return_is_no_proof(2, 1, 3, None)]
#[case::the_return_beside_a_proof(
    3,
    1,
    3,
    Some("it was started 3 times and never settled, and it was redelivered once before it had an id")
)]
fn an_event_is_dead_lettered_once_it_was_started_too_often_and_never_settled(
    #[case] crashes: u32,
    #[case] back: u32,
    #[case] limit: u32,
    #[case] error: Option<&str>,
) {
    let expected = error.map(|error| {
        Decision::DeadLetter(Failed {
            attempts: 1,
            reason: format!("crash: {error}"),
            failure: format!("2026-06-01T09:00:00.000Z {error}"),
        })
    });
    assert_eq!(crashed(crashes, back, 1, limit, now()), expected);
}

#[test]
fn a_delivery_is_published_again_at_half_the_delivery_limit() {
    assert_eq!(i64::from(OFTEN), crate::domain::compile::DELIVERY_LIMIT / 2);
}

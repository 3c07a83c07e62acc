use proptest::prelude::*;
use rstest::rstest;

use super::*;

/// 27 November 2026.
const NOW: i64 = 1_795_800_000_000;
const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
/// A handler's timeout and a lease.
const PATIENCE: i64 = 75 * SECOND;

fn spec() -> BreakerSpec {
    let (window, cooldown) = (Duration::from_secs(30), Some(Duration::from_mins(1)));
    BreakerSpec { errors: Errors::Count(100), window, cooldown, probes: 5 }
}

fn share(thousandths: u64) -> BreakerSpec {
    BreakerSpec { errors: Errors::Share { thousandths, minimum: 20 }, ..spec() }
}

/// A breaker with its spec, and what its last report came to.
struct Breaker {
    spec: BreakerSpec,
    state: BreakerState,
    has_opened: bool,
    granted: u32,
}

impl Breaker {
    fn new(spec: BreakerSpec) -> Self {
        Self { spec, state: BreakerState::default(), has_opened: false, granted: 0 }
    }

    fn opened() -> Self {
        let mut breaker = Self::new(spec());
        breaker.runs(NOW, 100, 100);
        assert!(breaker.has_opened);
        breaker
    }

    /// An open breaker, whose worker `a` has just been granted so many probes.
    fn half_open(granted: u32) -> Self {
        let mut breaker = Self::opened();
        breaker.wants("a", NOW + MINUTE, granted);
        assert_eq!(breaker.granted, granted);
        breaker
    }

    /// A worker reports, which knows the present era and its grants.
    fn say(&mut self, name: &str, now: i64, report: Report) -> &mut Self {
        let (good, holds) = match &self.state.phase {
            Phase::HalfOpen { grants } => {
                grants.iter().filter(|grant| grant.to == name).fold((0, 0), |(good, holds), grant| {
                    if grant.until.is_none() { (good + 1, holds) } else { (good, holds + 1) }
                })
            }
            Phase::Open { .. } | Phase::Closed { .. } => (0, 0),
        };
        let (good, holds) = (good + report.good, u32::saturating_sub(holds, report.good));
        let report = Report { era: self.state.era, good, holds, ..report };
        self.say_of(name, now, &report)
    }

    fn say_of(&mut self, name: &str, now: i64, report: &Report) -> &mut Self {
        let reporter = Reporter { name, patience: Duration::from_millis(PATIENCE.unsigned_abs()), notifies: true };
        let number = self.state.era.number;
        let answer = self.state.clone().report(&self.spec, now, report, reporter);
        assert_eq!(BreakerState::parse(&answer.state.text()), Some(answer.state.clone()));
        Answer { state: self.state, granted: self.granted } = answer;
        self.has_opened = number != self.state.era.number;
        self
    }

    fn runs(&mut self, now: i64, runs: u64, errors: u64) -> &mut Self {
        self.say("a", now, Report { runs, errors, ..Report::default() })
    }

    fn wants(&mut self, name: &str, now: i64, wants: u32) -> &mut Self {
        self.say(name, now, Report { wants, ..Report::default() })
    }

    fn good(&mut self, name: &str, now: i64, good: u32) -> &mut Self {
        self.say(name, now, Report { good, ..Report::default() })
    }

    fn fails(&mut self, name: &str, now: i64) -> &mut Self {
        self.say(name, now, Report { has_failed: true, ..Report::default() })
    }
}

#[rstest]
#[case::enough(spec(), &[(0, 100, 100)], true)]
#[case::too_few(spec(), &[(0, 1_000, 99)], false)]
#[case::of_several_reports(spec(), &[(0, 500, 50), (1, 500, 49), (2, 1, 1)], true)]
#[case::nothing_ever_succeeded(spec(), &[(0, 99, 99), (29_000, 1, 1)], true)]
#[case::over_the_end_of_a_window(spec(), &[(29_900, 60, 60), (30_100, 40, 40)], true)]
#[case::too_long_ago(spec(), &[(0, 99, 99), (33_000, 1, 1)], false)]
#[case::the_first_errors_come_late(spec(), &[(0, 10_000, 0), (28_000, 100, 100)], true)]
#[case::a_share(share(500), &[(0, 20, 10)], true)]
#[case::a_smaller_share(share(500), &[(0, 200, 99)], false)]
#[case::of_too_few_runs(share(500), &[(0, 19, 19)], false)]
#[case::of_no_error(share(0), &[(0, 100, 0)], false)]
#[case::a_clock_a_little_ahead(spec(), &[(4_000, 60, 60), (0, 40, 40)], true)]
#[case::a_clock_far_ahead(spec(), &[(300_000, 60, 60), (0, 40, 40)], false)]
fn a_breaker_opens_at_too_many_errors(
    #[case] spec: BreakerSpec,
    #[case] reports: &[(i64, u64, u64)],
    #[case] opens: bool,
) {
    let mut breaker = Breaker::new(spec);
    for (at, runs, errors) in reports {
        assert!(!breaker.has_opened, "it opens with the last report alone");
        breaker.runs(NOW + at, *runs, *errors);
    }
    assert_eq!((breaker.has_opened, !breaker.state.is_closed()), (opens, opens));
}

#[test]
fn one_report_opens_a_breaker_and_later_ones_change_nothing() {
    let mut breaker = Breaker::new(spec());
    let late = Report { runs: 100, errors: 100, reasons: vec!["refused".to_owned()], ..Report::default() };
    breaker.say("a", NOW, late.clone());
    assert!(breaker.has_opened);
    let (era, opening) = (breaker.state.era, breaker.state.opening.clone().expect("an opening"));
    assert_eq!((era.number, era.round), (NOW / SECOND, 0));
    assert_eq!((opening.errors, opening.runs, opening.by.as_str()), (100, 100, "a"));
    assert_eq!(opening.reasons, ["refused"]);
    // A worker that has not seen it yet, and one that has.
    assert!(!breaker.say_of("b", NOW + 1, &late).has_opened);
    assert!(!breaker.say("b", NOW + 1, late).has_opened);
    assert_eq!((breaker.state.era, breaker.state.opening.clone()), (era, Some(opening)));
}

#[test]
fn nothing_is_granted_before_the_cooldown_is_over_or_to_a_worker_without_events() {
    let mut breaker = Breaker::opened();
    assert_eq!(breaker.wants("a", NOW + MINUTE - 1, 9).granted, 0);
    assert_eq!(breaker.wants("a", NOW + MINUTE, 0).granted, 0);
    assert!(matches!(breaker.state.phase, Phase::Open { .. }), "nobody has an event to try");
    assert_eq!(breaker.wants("a", NOW + MINUTE, 3).granted, 3);
    assert_eq!(breaker.wants("b", NOW + MINUTE, 9).granted, 2, "five over all workers");
    assert_eq!(breaker.wants("c", NOW + MINUTE, 9).granted, 0);
}

#[test]
fn probes_that_all_go_well_close_a_breaker() {
    let mut breaker = Breaker::half_open(3);
    breaker.wants("b", NOW + MINUTE, 9);
    breaker.good("a", NOW + MINUTE, 3).good("b", NOW + MINUTE, 1);
    assert!(!breaker.state.is_closed());
    assert_eq!(breaker.wants("c", NOW + MINUTE, 9).granted, 0, "the fifth is under way");
    breaker.good("b", NOW + MINUTE, 1);
    assert_eq!(breaker.state.phase, Phase::Closed { by: Some(ClosedBy::Probes), at: Some(NOW + MINUTE) });
    assert!(!breaker.runs(NOW + MINUTE, 99, 99).has_opened, "the errors from before are forgotten");
    assert!(breaker.runs(NOW + MINUTE, 1, 1).has_opened);
    assert!(breaker.state.era.number > NOW / SECOND);
}

#[test]
fn no_more_probes_go_well_than_were_granted() {
    let mut breaker = Breaker::half_open(1);
    breaker.good("a", NOW + MINUTE, 5).good("b", NOW + MINUTE, 5);
    assert!(!breaker.state.is_closed());
    assert_eq!(breaker.wants("c", NOW + MINUTE, 9).granted, 4);
}

#[test]
fn a_probe_that_fails_opens_a_breaker_for_twice_as_long_up_to_ten_times() {
    let (mut breaker, mut now) = (Breaker::opened(), NOW);
    let number = breaker.state.era.number;
    for minutes in [1, 2, 4, 8, 10, 10] {
        assert_eq!(breaker.wants("a", now + minutes * MINUTE - 1, 5).granted, 0, "{minutes} minutes");
        now += minutes * MINUTE;
        assert_eq!(breaker.wants("a", now, 5).granted, 5, "{minutes} minutes");
        assert!(!breaker.fails("a", now).has_opened, "its notice is published");
    }
    assert_eq!(breaker.state.era, Era { number, round: 6 });
}

#[test]
fn the_end_of_a_probe_of_an_earlier_round_tells_nothing() {
    let mut breaker = Breaker::half_open(5);
    let (now, late) = (NOW + MINUTE, breaker.state.era);
    breaker.fails("a", now).wants("b", now + 2 * MINUTE, 1);
    assert_eq!(breaker.granted, 1);
    let before = breaker.state.clone();
    for report in [Report { good: 4, ..Report::default() }, Report { has_failed: true, ..Report::default() }] {
        breaker.say_of("a", now + 2 * MINUTE, &Report { era: late, ..report });
        assert_eq!(breaker.state, before);
    }
}

#[test]
fn a_grant_of_a_worker_that_has_died_goes_to_another_one() {
    let mut breaker = Breaker::half_open(5);
    let now = NOW + MINUTE;
    assert_eq!(breaker.wants("b", now + PATIENCE - 1, 9).granted, 0);
    assert_eq!(breaker.wants("b", now + PATIENCE, 9).granted, 5);
}

#[test]
fn a_probe_that_tells_nothing_is_granted_again() {
    let mut breaker = Breaker::half_open(5);
    breaker.say_of("a", NOW + MINUTE, &Report { era: breaker.state.era, holds: 3, ..Report::default() });
    assert_eq!(breaker.wants("b", NOW + MINUTE, 9).granted, 2);
}

#[test]
fn a_report_of_probes_may_be_repeated() {
    let mut breaker = Breaker::half_open(3);
    let report = Report { era: breaker.state.era, good: 1, holds: 2, ..Report::default() };
    let once = breaker.say_of("a", NOW + MINUTE, &report).state.clone();
    assert_eq!(breaker.say_of("a", NOW + MINUTE, &report).state, once);
    assert_eq!(breaker.wants("b", NOW + MINUTE, 9).granted, 2);
    // An answer with grants may be lost.
    let lost = Report { era: report.era, wants: 9, ..Report::default() };
    assert_eq!(breaker.say_of("b", NOW + MINUTE, &lost).granted, 2);
    let failed = Report { has_failed: true, ..report };
    let once = breaker.say_of("a", NOW + MINUTE, &failed).state.clone();
    assert_eq!(breaker.say_of("a", NOW + MINUTE, &failed).state, once);
}

#[test]
fn a_slow_probe_keeps_a_breaker_half_open_until_its_grant_ends() {
    let mut breaker = Breaker::half_open(5);
    let now = NOW + MINUTE;
    breaker.good("a", now, 4);
    assert_eq!(breaker.wants("b", now + PATIENCE - 1, 9).granted, 0);
    assert_eq!(breaker.wants("b", now + PATIENCE, 9).granted, 1);
    breaker.good("b", now + PATIENCE, 1);
    assert!(breaker.state.is_closed());
}

#[test]
fn a_breaker_with_a_manual_cooldown_waits_for_a_person() {
    let mut breaker = Breaker::opened();
    breaker.spec.cooldown = None;
    assert_eq!(breaker.wants("a", NOW + 10_000 * MINUTE, 9).granted, 0);
    breaker.state = breaker.state.close(NOW).expect("it was open");
    assert_eq!(breaker.state.phase, Phase::Closed { by: Some(ClosedBy::Person), at: Some(NOW) });
    assert_eq!(breaker.state.clone().close(NOW), None);
}

#[test]
fn a_breaker_is_half_open_once_its_cooldown_is_over_although_no_worker_has_an_event() {
    let mut breaker = Breaker::opened();
    let is_half_open = |breaker: &Breaker, now| breaker.state.is_half_open(&breaker.spec, now);
    assert!(!is_half_open(&breaker, NOW + MINUTE - 1) && is_half_open(&breaker, NOW + MINUTE));
    assert_eq!(breaker.state.tried(NOW + MINUTE), 0);
    breaker.wants("a", NOW + MINUTE, 3).good("a", NOW + MINUTE, 1);
    assert!(is_half_open(&breaker, NOW + MINUTE));
    assert_eq!((breaker.state.tried(NOW + MINUTE), breaker.state.tried(NOW + MINUTE + PATIENCE)), (2, 0));
    assert!(!is_half_open(breaker.fails("a", NOW + MINUTE), NOW + MINUTE));
    breaker.state = breaker.state.close(NOW).expect("it was open");
    assert!(!is_half_open(&breaker, NOW + 9 * MINUTE));
}

#[test]
fn runs_from_before_an_opening_are_not_counted_after_it() {
    let mut breaker = Breaker::new(spec());
    let before = Report { runs: 100, errors: 100, ..Report::default() };
    breaker.say_of("a", NOW, &before);
    breaker.state = breaker.state.close(NOW).expect("it was open");
    assert!(!breaker.say_of("b", NOW + SECOND, &before).has_opened);
}

#[test]
fn an_emptied_redis_has_back_what_a_worker_knows() {
    let (open, half_open) = (Breaker::opened(), Breaker::half_open(5));
    let or_known = |stored, known| BreakerState::or_known(stored, known, &spec(), NOW);
    let mut closed = Breaker::opened();
    closed.state = closed.state.close(NOW).expect("it was open");
    for known in [&open.state, &half_open.state, &closed.state] {
        assert_eq!(or_known(None, known), *known);
    }
    let order = [&BreakerState::default(), &open.state, &half_open.state, &closed.state];
    for (place, earlier) in order.iter().enumerate() {
        for later in &order[place..] {
            assert_eq!(or_known(Some((*earlier).clone()), later), **later);
            assert_eq!(or_known(Some((*later).clone()), earlier), **later);
        }
    }
    // It is open by what was forgotten, and by no one else's errors.
    let mut next = Breaker::new(spec());
    next.runs(NOW + SECOND, 100, 100);
    assert!(next.state.era > closed.state.era);
}

/// Worker `b` has not learned of the grants of `a`, or not even that the breaker is half-open.
#[rstest]
#[case::open(Breaker::opened().state)]
#[case::half_open(BreakerState { phase: Phase::HalfOpen { grants: Vec::new() }, ..Breaker::opened().state })]
fn an_emptied_redis_grants_nothing_more_until_other_workers_have_reported(#[case] known: BreakerState) {
    let mut breaker = Breaker::half_open(5);
    let now = NOW + MINUTE + SECOND;
    breaker.state = BreakerState::or_known(None, &known, &spec(), now);
    assert_eq!(breaker.wants("b", now, 9).granted, 0);
    let report = Report { era: known.era, good: 0, holds: 5, ..Report::default() };
    breaker.say_of("a", now + SECOND, &report);
    assert_eq!(breaker.wants("b", now + 3 * SECOND, 9).granted, 0);
    breaker.say_of("a", now + 4 * SECOND, &Report { good: 5, holds: 0, ..report });
    assert!(breaker.state.is_closed());
}

#[test]
fn a_clock_that_was_set_back_does_not_prolong_the_cooldown() {
    let mut breaker = Breaker::opened();
    breaker.wants("a", NOW - 5 * MINUTE, 1);
    assert_eq!(breaker.wants("a", NOW - 4 * MINUTE, 1).granted, 1);
    assert_eq!(breaker.wants("b", NOW - 4 * MINUTE, 9).granted, 4);
}

#[test]
fn an_opening_without_a_notice_is_left_to_another_worker_after_a_while() {
    let mut breaker = Breaker::opened();
    let number = breaker.state.era.number;
    let late = NOW + 5 * SECOND;
    assert!(!breaker.state.is_notice_late(late - 1) && breaker.state.is_notice_late(late));
    breaker.say("b", late, Report { notified: Some(number - 1), ..Report::default() });
    assert!(breaker.state.is_notice_late(late), "it is about an earlier opening");
    breaker.say("b", late, Report { notified: Some(number), ..Report::default() });
    assert!(!breaker.state.lacks_notice() && !breaker.state.is_notice_late(late));
}

proptest! {
    /// However workers report, no more events are tried than the breaker has probes, and its era only grows.
    #[test]
    fn grants_are_never_too_many(steps in prop::collection::vec((0..3_usize, 0..4_u8, 0..7_u32, 0..40_000_i64), 1..60)) {
        let (mut breaker, mut now) = (Breaker::new(spec()), NOW);
        let names = ["a", "b", "c"];
        for (worker, what, count, passes) in steps {
            now += passes;
            let before = breaker.state.clone();
            match what {
                0 => breaker.runs(now, 50, 50),
                1 => breaker.wants(names[worker], now, count),
                2 => breaker.good(names[worker], now, count),
                _ => breaker.fails(names[worker], now),
            };
            prop_assert!(breaker.state.era >= before.era);
            match &breaker.state.phase {
                Phase::HalfOpen { grants } => prop_assert!(grants.len() <= 5),
                Phase::Open { .. } | Phase::Closed { .. } => prop_assert_eq!(breaker.granted, 0),
            }
        }
    }
}

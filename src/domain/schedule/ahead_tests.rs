use jiff::SignedDuration;
use rstest::rstest;

use super::*;
use crate::domain::{
    schedule::{calendar::Calendar, rule::Rule},
    switches::Paused,
};

/// Every ten seconds.
fn definition(mode: Mode, overlap: Overlap) -> Definition {
    Definition {
        name: "poll".parse().expect("a word"),
        event_type: "import".parse().expect("a word"),
        reference: None,
        payload: "{}".into(),
        rule: Rule {
            calendar: Calendar::every(Duration::from_secs(10)).expect("an interval"),
            mode,
            jitter: Duration::ZERO,
            overlap,
            catch_up: CatchUp::Last,
            on_failure: OnScheduleFailure::Continue,
        },
        paused: None,
    }
}

const NOON: i64 = 1_780_315_200_000;

/// So many seconds after noon.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millisecond(NOON + seconds * 1_000).expect("a time")
}

/// Returns a pause of all schedules since this time.
fn closed(now: Timestamp) -> Pause {
    Pause::of_person(Paused::All, "closed", now, None)
}

/// The state that a worker leaves whose clock is so many seconds ahead: it has run the event of noon, and armed the next one. `lag` is how long
/// the broker and the handler took.
fn left_by(definition: &Definition, ahead: i64, lag: i64) -> ScheduleState {
    let first = definition.rule.first(&definition.name, at(-5), None, None).expect("an event");
    let state = ScheduleState { digest: definition.digest(), ..ScheduleState::default() }.armed(
        &definition.digest(),
        first,
        at(-5),
    );
    let (link, now) = (definition.link(first.position), at(lag + ahead));
    let next = definition.rule.next(&definition.name, first.position, now).expect("an event");
    let started = state.started(&link, now, now + SignedDuration::from_mins(2));
    started.armed(&definition.digest(), next, now).ended(&link, now, &RunOutcome::Done)
}

const MINUTE: i64 = 60;
const DAY: i64 = 86_400;
/// From 2026 to 2099.
const TO_2099: i64 = 73 * 365 * DAY;

#[rstest]
fn a_chain_that_was_armed_too_far_ahead_is_armed_again(
    #[values(Mode::Fixed, Mode::Sequential)] mode: Mode,
    #[values(2 * MINUTE, DAY, 30 * DAY, TO_2099)] ahead: i64,
    #[values(-2, 0, 2)] healer: i64,
) {
    let definition = definition(mode, Overlap::Skip);
    let now = at(1 + healer);
    let restored = ScheduleState::restored(Some(left_by(&definition, ahead, 0)), None, now).expect("a state");
    let (state, wanted) = restored.clone().repaired(&definition, now);
    let Some(Wanted::Ahead(arm)) = wanted else { panic!("{wanted:?} of {restored:?}") };
    assert!(arm.due <= now.as_millisecond() + 10_000 && arm.position <= arm.due, "{arm:?} at {now}");
    // An apply does so as well, and `plan` says it.
    let applied = ScheduleState::applied(Some(left_by(&definition, ahead, 0)), &definition, now);
    assert_eq!(applied.repaired(&definition, now).1, wanted);
    // Once it is published, nothing is wanted any more, and the chain goes on from there.
    let published = state.armed(&definition.digest(), arm, now);
    assert_eq!(published.clone().repaired(&definition, now).1, None);
    assert!(published.is_next(&definition.link(arm.position)));
}

#[rstest]
#[case::a_minute_ahead(MINUTE - 2)]
#[case::right(0)]
#[case::a_minute_behind(-MINUTE)]
fn a_chain_of_clocks_that_agree_is_left_alone(
    #[case] ahead: i64,
    #[values(Mode::Fixed, Mode::Sequential)] mode: Mode,
    #[values(-2, 0, 2)] healer: i64,
) {
    let definition = definition(mode, Overlap::Skip);
    let state = left_by(&definition, ahead, 0);
    let restored = ScheduleState::restored(Some(state.clone()), None, at(1 + healer)).expect("a state");
    assert_eq!(restored, state);
    let wanted = restored.repaired(&definition, at(1 + healer)).1;
    // With a clock that is behind, the event is due at once, and is published again once it is overdue.
    assert!(!matches!(wanted, Some(Wanted::Ahead(_) | Wanted::Unpublished(_))), "{wanted:?}");
}

/// An instant passed while nobody knew that the chain was armed for next month.
#[test]
fn instants_that_passed_meanwhile_are_made_up_for() {
    let mut definition = definition(Mode::Fixed, Overlap::Skip);
    definition.rule.catch_up = CatchUp::All;
    let mut state = left_by(&definition, 0, 0);
    let next_month = NOON + 30 * DAY * 1_000;
    state.armed = Some(Armed { arm: Arm { position: next_month, due: next_month }, published: Some(NOON) });
    let position = |state: &ScheduleState, seconds: i64| {
        let wanted = state.clone().repaired(&definition, at(seconds)).1;
        wanted.map(|wanted| (wanted.arm().position - NOON) / 1_000)
    };
    assert_eq!(position(&state, 35), Some(10));
    // No more than two minutes of them, and none from before a pause.
    assert_eq!(position(&state, 1_000), Some(880));
    state.from = Some(NOON + 20_000);
    assert_eq!(position(&state, 35), Some(20));
}

#[rstest]
fn no_event_runs_beside_a_run_whose_clock_was_ahead(
    #[values(Overlap::Skip, Overlap::Queue)] overlap: Overlap,
    #[values(Mode::Fixed, Mode::Sequential)] mode: Mode,
) {
    let mut definition = definition(mode, overlap);
    definition.rule.catch_up = CatchUp::All;
    // It runs an event of next month, for two minutes at most.
    let (position, then) = (NOON + 30 * DAY * 1_000, at(30 * DAY));
    let link = definition.link(position);
    let state = ScheduleState { digest: definition.digest(), ..ScheduleState::default() };
    let state = state.started(&link, then, then + SignedDuration::from_mins(2));
    let restored = ScheduleState::restored(Some(state), None, at(1)).expect("a state");
    let (state, wanted) = restored.repaired(&definition, at(1));
    let next = definition.link(wanted.expect("an event").arm().position);
    let admitted = |state: &ScheduleState, seconds: i64| state.admit(&next, false, at(seconds)) == Admission::Run;
    assert!(!admitted(&state, 10), "{state:?}");
    // Nor does one that was under way when that was found.
    assert_ne!(state.admit(&definition.link(NOON), false, at(1)), Admission::Run, "{state:?}");
    assert!(admitted(&state, 130), "it is lost");
    assert!(admitted(&state.ended(&link, at(9), &RunOutcome::Done), 10), "it has ended");
}

#[test]
fn an_event_of_next_month_is_not_due_and_arms_nothing() {
    let definition = definition(Mode::Sequential, Overlap::Skip);
    for position in [NOON + 30 * DAY * 1_000, i64::MAX] {
        assert!(definition.link(position).is_ahead(at(0)));
    }
    for seconds in [-100, 0, 59] {
        assert!(!definition.link(NOON + seconds * 1_000).is_ahead(at(0)));
    }
}

#[test]
fn a_schedule_that_was_resumed_with_a_wrong_clock_runs() {
    let definition = definition(Mode::Fixed, Overlap::Skip);
    let paused = left_by(&definition, 0, 0).switched_on(&closed(at(1)));
    let resumed = |state: ScheduleState, seconds: i64| {
        state.resumed(&definition, at(seconds)).repaired(&definition, at(seconds)).0
    };
    let ahead = resumed(paused, 30 * DAY);
    assert_eq!(ahead.from, Some(NOON + 30 * DAY * 1_000 + 10_000));
    // It is resumed again, or healed, by a right clock.
    for state in [
        resumed(ahead.clone().switched_on(&closed(at(20))), 21),
        ScheduleState::restored(Some(ahead), None, at(21)).expect("a state").repaired(&definition, at(21)).0,
    ] {
        let state = ScheduleState::restored(Some(state), None, at(25)).expect("a state");
        let arm = state.armed.expect("an event").arm;
        assert!(arm.position <= NOON + 30_000, "{arm:?}");
        assert_eq!(state.admit(&definition.link(arm.position), false, at(30)), Admission::Run);
    }
}

/// A late copy of a lost event is published again also if a wrong clock has noted the time of its publishing.
#[test]
fn an_event_that_was_published_next_month_can_be_late() {
    let definition = definition(Mode::Fixed, Overlap::Skip);
    let arm = Arm { position: NOON, due: NOON };
    let armed = Some(Armed { arm, published: Some(NOON + 30 * DAY * 1_000) });
    let state = ScheduleState { digest: definition.digest(), armed, ..ScheduleState::default() };
    assert_eq!(state.clone().repaired(&definition, at(50)).1, None);
    assert_eq!(state.repaired(&definition, at(61)).1, Some(Wanted::Late(arm)));
}

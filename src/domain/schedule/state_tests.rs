use super::*;
use crate::domain::{
    schedule::{calendar::Calendar, rule::Rule},
    switches::Paused,
};

const SECOND: i64 = 1_000;

/// Each second, with this payload.
fn definition(payload: &'static str) -> Definition {
    Definition {
        name: "poll".parse().expect("a word"),
        event_type: "import".parse().expect("a word"),
        reference: None,
        payload: payload.into(),
        rule: Rule {
            calendar: Calendar::every(Duration::from_secs(1)).expect("an interval"),
            mode: Mode::Fixed,
            jitter: Duration::ZERO,
            overlap: Overlap::Queue,
            catch_up: CatchUp::All,
            on_failure: OnScheduleFailure::Continue,
        },
        paused: None,
    }
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).expect("a time")
}

/// Returns a pause of all schedules since this time.
fn closed(now: Timestamp) -> Pause {
    Pause::of_person(Paused::All, "closed", now, None)
}

/// The state in which the event at `position` of this definition is armed.
fn armed(definition: &Definition, position: i64) -> ScheduleState {
    let arm = Arm { position, due: position };
    ScheduleState::default().with(definition, arm)
}

impl ScheduleState {
    fn with(self, definition: &Definition, arm: Arm) -> Self {
        Self { digest: definition.digest(), armed: Some(Armed { arm, published: Some(arm.due) }), ..self }
    }
}

#[test]
fn an_instant_that_the_new_chain_has_not_reached_is_not_settled() {
    let (old, new) = (definition("1"), definition("2"));
    // A worker of the former definition runs second 5 and arms second 6, while an apply arms second 5 again.
    let state = ScheduleState::applied(Some(armed(&old, 5 * SECOND)), &new, at(5 * SECOND + 10));
    assert_eq!(state.armed.map(|armed| armed.arm.position), Some(5 * SECOND));
    let drop = |second: i64| state.admit(&old.link(second * SECOND), false, at(6 * SECOND));
    let dropped = |is_armed| Admission::Drop { why: "its schedule has another definition now", is_armed };
    assert_eq!([drop(4), drop(5), drop(6)], [dropped(false), dropped(true), dropped(true)]);
}

#[test]
fn a_chain_goes_on_from_an_event_that_was_settled_elsewhere() {
    let (old, new) = (definition("1"), definition("2"));
    let running = armed(&old, 5 * SECOND).started(&old.link(5 * SECOND), at(5 * SECOND), at(60 * SECOND));
    let state = ScheduleState::applied(Some(running), &new, at(5 * SECOND + 10));
    let copy = new.link(5 * SECOND);
    assert!(!state.stands_at(&copy), "the run may fail, and its event then waits to run again");
    let ended = state.ended(&old.link(5 * SECOND), at(5 * SECOND + 20), &RunOutcome::Done);
    assert!(ended.stands_at(&copy) && !ended.stands_at(&old.link(5 * SECOND)));
    assert!(ended.stands_at(&new.link(6 * SECOND)), "the state is written after the publish");
    let next = Arm { position: 6 * SECOND, due: 6 * SECOND };
    assert!(!ended.armed(&new.digest(), next, at(6 * SECOND)).stands_at(&copy), "the chain has gone on");
}

#[test]
fn a_schedule_that_comes_back_begins_with_the_next_instant() {
    let definition = definition("1");
    let removed = armed(&definition, 5 * SECOND).removed();
    let why = removed.admit(&definition.link(5 * SECOND), false, at(5 * SECOND));
    assert_eq!(why, Admission::Drop { why: "its schedule was removed", is_armed: false });
    let back = ScheduleState::applied(Some(removed), &definition, at(9 * SECOND + 500));
    assert_eq!(back.armed.map(|armed| armed.arm.position), Some(10 * SECOND));
}

/// The run of second 1 takes three seconds.
#[test]
fn an_instant_that_is_skipped_lets_no_later_one_run_beside_the_run_under_way() {
    for (overlap, catch_up) in [(Overlap::Skip, CatchUp::All), (Overlap::Queue, CatchUp::Last)] {
        let mut definition = definition("1");
        (definition.rule.overlap, definition.rule.catch_up) = (overlap, catch_up);
        let link = |second: i64| definition.link(second * SECOND);
        let runs = armed(&definition, SECOND).started(&link(1), at(SECOND), at(60 * SECOND));
        let skipped = runs.skipped(&link(2), at(3 * SECOND), "why");
        let admitted = skipped.admit(&link(3), false, at(3 * SECOND));
        assert_ne!(admitted, Admission::Run, "{overlap:?}");
        let ended = skipped.ended(&link(1), at(4 * SECOND), &RunOutcome::Done);
        assert_eq!(ended.run.clone().and_then(|run| run.outcome), Some(RunOutcome::Done));
        assert_eq!(ended.admit(&link(4), false, at(4 * SECOND)), Admission::Run);
    }
}

#[test]
fn the_event_that_waits_through_a_pause_is_still_the_next_one() {
    for mode in [Mode::Fixed, Mode::Sequential] {
        let mut definition = definition("1");
        definition.rule.mode = mode;
        let before = armed(&definition, 10 * SECOND);
        let resumed =
            |second: i64| before.clone().switched_on(&closed(at(5 * SECOND))).resumed(&definition, at(second * SECOND));
        assert_eq!(resumed(6).armed, before.armed);
        // Its time has come during the pause, and it was dropped.
        let next = resumed(11).armed.expect("an event");
        assert!(next.arm.position > 10 * SECOND && next.published.is_none(), "{next:?}");
        // Or no worker has taken it yet.
        let admitted = resumed(11).admit(&definition.link(10 * SECOND), false, at(12 * SECOND));
        assert!(matches!(admitted, Admission::Drop { is_armed: false, .. }), "{admitted:?}");
        let admitted = resumed(11).admit(&definition.link(next.arm.position), false, at(20 * SECOND));
        assert_eq!(admitted, Admission::Run);
    }
}

#[test]
fn a_schedule_follows_the_switches() {
    let [definition, other] = ["1", "2"].map(definition);
    let before = armed(&definition, 10 * SECOND);
    let on = before.clone().switched_on(&closed(at(5 * SECOND)));
    assert_eq!(
        on.clone().switched(Some(&closed(at(7 * SECOND))), None, at(7 * SECOND)),
        on,
        "it is paused since the first time"
    );
    assert_eq!(
        on.clone().switched(None, None, at(8 * SECOND)),
        on,
        "the file of this worker does not have the schedule"
    );
    assert_eq!(on.clone().switched(None, Some(&other), at(8 * SECOND)), on, "or another one");
    assert_eq!(on.switched(None, Some(&definition), at(8 * SECOND)), before);
    // A failed event has paused it, and nobody else.
    let failed = ScheduleState {
        paused: Some(SchedulePause { since: 0, reason: "failed".to_owned(), is_switched: false, until: None }),
        ..before
    };
    assert_eq!(failed.clone().switched(None, Some(&definition), at(8 * SECOND)), failed);
    let until = Pause { until: Some(at(20 * SECOND)), ..closed(at(8 * SECOND)) };
    assert_eq!(failed.clone().switched(Some(&until), Some(&definition), at(8 * SECOND)), failed);
}

#[test]
fn a_run_that_fails_during_a_pause_pauses_beyond_its_end() {
    let mut definition = definition("1");
    definition.rule.on_failure = OnScheduleFailure::Pause;
    let (link, until) =
        (definition.link(10 * SECOND), Pause { until: Some(at(20 * SECOND)), ..closed(at(5 * SECOND)) });
    let runs = armed(&definition, 10 * SECOND).started(&link, at(10 * SECOND), at(60 * SECOND));
    let failed = runs.switched_on(&until).ended(&link, at(12 * SECOND), &RunOutcome::DeadLetter("no".to_owned()));
    for switch in [Some(&until), None] {
        assert_eq!(failed.clone().switched(switch, Some(&definition), at(30 * SECOND)), failed);
    }
}

#[test]
fn the_instants_since_a_pause_has_ended_by_itself_are_made_up_for() {
    let definition = definition("1");
    let pause = Pause { until: Some(at(20 * SECOND + 500)), ..closed(at(5 * SECOND)) };
    let paused = armed(&definition, 10 * SECOND).switched_on(&pause);
    // A worker looks eight seconds after the end of the pause.
    let resumed = paused.switched(None, Some(&definition), at(28 * SECOND));
    let next = resumed.armed.expect("an event").arm;
    assert_eq!(next.position, 21 * SECOND);
    assert_eq!(resumed.admit(&definition.link(next.position), false, at(28 * SECOND)), Admission::Run);
    let dropped = resumed.admit(&definition.link(20 * SECOND), false, at(28 * SECOND));
    assert!(matches!(dropped, Admission::Drop { is_armed: false, .. }), "{dropped:?}");
}

/// Every second, up to five seconds late.
#[test]
fn no_instant_is_left_out_because_jitter_puts_it_off() {
    let mut definition = definition("1");
    (definition.rule.jitter, definition.rule.catch_up) = (Duration::from_secs(5), CatchUp::Last);
    let mut state = armed(&definition, SECOND);
    let mut now = SECOND;
    for second in 1..60 {
        let arm = state.armed.expect("an event").arm;
        assert_eq!(arm.position, second * SECOND);
        now = now.max(arm.due);
        let link = definition.link(arm.position);
        assert_eq!(state.admit(&link, false, at(now)), Admission::Run, "{second}");
        let next = definition.rule.next(&definition.name, arm.position, at(now)).expect("an event");
        state = state.armed(&definition.digest(), next, at(now));
    }
}

#[test]
fn an_outcome_is_written_as_it_was_read() {
    let texts = ["done", "cancelled", "skipped: busy: still", "dropped: why", "dead-letter: ", "postponed"];
    for text in texts {
        assert_eq!(RunOutcome::from(text.to_owned()).to_string(), text);
    }
    let letter = RunOutcome::from("dead-letter: no such customer".to_owned());
    assert_eq!(letter, RunOutcome::DeadLetter("no such customer".to_owned()));
}

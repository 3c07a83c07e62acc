//! The arithmetic of chains, and the header that carries it.

use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use rstest::rstest;

use super::{
    calendar::Calendar,
    definition::Definition,
    link::{Link, LinkError, Named},
    rule::{Arm, CatchUp, Mode, OnScheduleFailure, Overlap, Rule},
    state::{Armed, OVERDUE, ScheduleState, Wanted},
};
use crate::domain::switches::{Pause, Paused};

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn ms(text: &str) -> i64 {
    at(text).as_millisecond()
}

/// Returns a pause of all schedules since this time.
fn closed(now: Timestamp) -> Pause {
    Pause::of_person(Paused::All, "closed", now, None)
}

fn hourly(catch_up: CatchUp) -> Rule {
    Rule {
        calendar: Calendar::cron("0 * * * *", "UTC").expect("an expression"),
        mode: Mode::Fixed,
        jitter: Duration::ZERO,
        overlap: Overlap::Queue,
        catch_up,
        on_failure: OnScheduleFailure::Continue,
    }
}

fn every(minutes: u64) -> Rule {
    let calendar = Calendar::every(Duration::from_mins(minutes)).expect("an interval");
    Rule { calendar, mode: Mode::Sequential, ..hourly(CatchUp::Last) }
}

fn definition(rule: Rule) -> Definition {
    Definition {
        name: "nightly".parse().expect("a word"),
        event_type: "mail".parse().expect("a word"),
        reference: None,
        payload: "{}".into(),
        rule,
        paused: None,
    }
}

#[rstest]
#[case::in_time(CatchUp::Last, "2026-06-01T10:00:01Z", "2026-06-01T11:00:00Z")]
#[case::late_all(CatchUp::All, "2026-06-01T13:30:00Z", "2026-06-01T11:00:00Z")]
#[case::late_last(CatchUp::Last, "2026-06-01T13:30:00Z", "2026-06-01T13:00:00Z")]
#[case::late_none(CatchUp::None, "2026-06-01T13:30:00Z", "2026-06-01T14:00:00Z")]
fn the_next_instant_depends_on_those_that_have_passed(
    #[case] catch_up: CatchUp,
    #[case] now: &str,
    #[case] next: &str,
) {
    let definition = definition(hourly(catch_up));
    let arm = definition.rule.next(&definition.name, ms("2026-06-01T10:00:00Z"), at(now)).expect("an instant");
    assert_eq!(arm, Arm { position: ms(next), due: ms(next) });
}

/// A definition replaces another one, whose event was due at `owed`.
#[rstest]
#[case::nothing_owed(None, "2026-06-01T11:00:00Z")]
#[case::passed(Some("2026-06-01T10:00:00Z"), "2026-06-01T10:00:00Z")]
#[case::passed_at_another_instant(Some("2026-06-01T09:15:00Z"), "2026-06-01T10:00:00Z")]
#[case::to_come(Some("2026-06-02T03:00:00Z"), "2026-06-01T11:00:00Z")]
fn a_new_definition_makes_up_for_an_instant_that_has_passed(#[case] owed: Option<&str>, #[case] first: &str) {
    let definition = definition(hourly(CatchUp::All));
    let now = at("2026-06-01T10:20:00Z");
    let arm = definition.rule.first(&definition.name, now, None, owed.map(ms)).expect("an instant");
    assert_eq!(arm.position, ms(first));
}

#[test]
fn the_numbers_of_a_sequential_schedule_only_rise() {
    let definition = definition(every(5));
    let now = at("2026-06-01T10:00:00Z");
    let first = |after| definition.rule.first(&definition.name, now, after, None).expect("an event").position;
    assert_eq!(first(None), now.as_millisecond());
    assert_eq!(first(Some(now.as_millisecond() + 7)), now.as_millisecond() + 8);
    let next = definition.rule.next(&definition.name, first(None), now).expect("an event");
    assert_eq!(next, Arm { position: now.as_millisecond() + 1, due: now.as_millisecond() + 300_000 });
}

#[test]
fn jitter_is_the_same_for_all_copies_of_an_event_and_within_its_bound() {
    let jitter = Duration::from_secs(10);
    let with = definition(Rule { jitter, ..hourly(CatchUp::All) });
    let mut spread = std::collections::BTreeSet::new();
    let mut position = ms("2026-06-01T00:00:00Z");
    for _ in 0..100 {
        let next = || with.rule.next(&with.name, position, Timestamp::UNIX_EPOCH).expect("an instant");
        assert_eq!(next(), next());
        let Arm { position: slot, due } = next();
        assert!((0..=10_000).contains(&(due - slot)), "{}", due - slot);
        spread.insert(due - slot);
        position = slot;
    }
    assert!(spread.len() > 50, "{} of 100", spread.len());
}

#[test]
fn every_part_of_a_definition_changes_its_digest() {
    let one = definition(hourly(CatchUp::Last));
    let others = [
        Definition { event_type: "post".parse().expect("a word"), ..one.clone() },
        Definition { reference: Some("all".parse().expect("a reference")), ..one.clone() },
        Definition { payload: "[]".into(), ..one.clone() },
        definition(hourly(CatchUp::All)),
        definition(Rule { overlap: Overlap::Skip, ..hourly(CatchUp::Last) }),
        definition(Rule { on_failure: OnScheduleFailure::Pause, ..hourly(CatchUp::Last) }),
        definition(Rule { jitter: Duration::from_secs(1), ..hourly(CatchUp::Last) }),
        definition(Rule { mode: Mode::Sequential, ..hourly(CatchUp::Last) }),
        definition(every(5)),
        definition(Rule {
            calendar: Calendar::cron("0 * * * *", "Europe/Berlin").expect("an expression"),
            ..hourly(CatchUp::Last)
        }),
    ];
    let digests: std::collections::BTreeSet<_> = others.iter().map(Definition::digest).chain([one.digest()]).collect();
    assert_eq!(digests.len(), others.len() + 1);
}

#[test]
fn a_link_is_named_after_its_instant_or_its_number() {
    let fixed = definition(hourly(CatchUp::Last)).link(ms("2026-06-01T03:00:00Z"));
    assert_eq!(fixed.id(), "nightly@2026-06-01T03:00:00Z");
    let expected = format!(
        r#"{{"name":"nightly","slot":"2026-06-01T03:00:00Z","cron":"0 * * * *","timezone":"UTC","mode":"fixed","digest":"{}"}}"#,
        fixed.digest
    );
    assert_eq!(fixed.text(), expected);
    let sequential = definition(every(5)).link(1_780_000_000_000);
    assert_eq!(sequential.id(), "nightly#1780000000000");
    let expected = format!(
        r#"{{"name":"nightly","number":1780000000000,"every":"5m","mode":"sequential","digest":"{}"}}"#,
        sequential.digest
    );
    assert_eq!(sequential.text(), expected);
}

#[rstest]
#[case::no_json("nightly", "expected")]
#[case::no_position(r#"{"name":"a","cron":"0 * * * *","mode":"fixed","digest":"x"}"#, "no `slot`")]
#[case::number_for_an_instant(r#"{"name":"a","number":5,"cron":"0 * * * *","mode":"fixed","digest":"x"}"#, "no `slot`")]
#[case::two_words(r#"{"name":"a.b","number":5,"every":"5m","mode":"sequential","digest":"x"}"#, "one word")]
#[case::no_calendar(r#"{"name":"a","number":5,"mode":"sequential","digest":"x"}"#, "either `cron` or `every`")]
#[case::two_calendars(
    r#"{"name":"a","number":5,"every":"5m","cron":"0 * * * *","mode":"sequential","digest":"x"}"#,
    "either `cron` or `every`"
)]
#[case::no_expression(r#"{"name":"a","number":5,"cron":"61 * * * *","mode":"sequential","digest":"x"}"#, "minute")]
#[case::no_duration(r#"{"name":"a","number":5,"every":"soon","mode":"sequential","digest":"x"}"#, "`soon`")]
fn a_header_that_is_no_link_is_refused(#[case] text: &str, #[case] why: &str) {
    let error = Link::parse(text).expect_err("no link");
    assert!(error.to_string().contains(why), "{error}");
    assert_eq!(matches!(error, LinkError::Json(_)), why == "expected", "{error:?}");
}

fn rules() -> impl Strategy<Value = Rule> {
    let calendars = prop_oneof![
        Just(Calendar::cron("0 3 * * 1-5", "Europe/Berlin").expect("an expression")),
        Just(Calendar::cron("*/10 * * * * *", "UTC").expect("an expression")),
        (1_u64..100_000).prop_map(|secs| Calendar::every(Duration::from_secs(secs)).expect("an interval")),
    ];
    let modes = prop_oneof![Just(Mode::Fixed), Just(Mode::Sequential)];
    let overlaps = prop_oneof![Just(Overlap::Queue), Just(Overlap::Skip)];
    let catch_ups = prop_oneof![Just(CatchUp::None), Just(CatchUp::Last), Just(CatchUp::All)];
    let failures = prop_oneof![Just(OnScheduleFailure::Continue), Just(OnScheduleFailure::Pause)];
    (calendars, modes, 0_u64..100_000, overlaps, catch_ups, failures).prop_map(
        |(calendar, mode, jitter, overlap, catch_up, on_failure)| {
            let jitter = Duration::from_millis(jitter);
            Rule { calendar, mode, jitter, overlap, catch_up, on_failure }
        },
    )
}

proptest! {
    #[test]
    fn a_link_survives_its_header(rule in rules(), position in 0_i64..4_000_000_000_000, is_extra: bool) {
        let link = Link { is_extra, ..definition(rule).link(position) };
        prop_assert_eq!(Link::parse(&link.text()), Ok(link));
    }

    #[test]
    fn no_text_makes_the_reader_of_links_panic(text in ".{0,200}") {
        let _ = Link::parse(&text);
    }

    #[test]
    fn the_next_event_is_always_a_later_one(rule in rules(), position in 0_i64..2_000_000_000_000, late in 0_i64..10_000_000) {
        let definition = definition(rule);
        let now = Timestamp::from_millisecond(position + late).expect("a time");
        let next = definition.rule.next(&definition.name, position, now).expect("an event");
        prop_assert!(next.position > position);
        prop_assert!(next.due >= next.position || definition.rule.mode == Mode::Sequential);
    }
}

/// An event that was published is repaired once it is overdue, and not before.
#[test]
fn only_an_overdue_event_is_published_again() {
    let definition = definition(hourly(CatchUp::All));
    let due = at("2026-06-01T10:00:00Z");
    let arm = Arm { position: due.as_millisecond(), due: due.as_millisecond() };
    let armed = Some(Armed { arm, published: Some(arm.due - 1) });
    let state = ScheduleState { digest: definition.digest(), armed, ..ScheduleState::default() };
    let later = |by: Duration| due + jiff::SignedDuration::try_from(by).expect("a duration");
    let (same, wanted) = state.clone().repaired(&definition, later(OVERDUE));
    assert_eq!((same, wanted), (state.clone(), None));
    let now = later(OVERDUE + Duration::from_millis(1));
    let (repaired, wanted) = state.repaired(&definition, now);
    assert_eq!(wanted, Some(Wanted::Late(arm)));
    // A crash before the publish leaves it to the next look.
    assert_eq!(repaired.clone().repaired(&definition, now).1, Some(Wanted::Unpublished(arm)));
    // Once it is published, it is not published again before it is twice as late.
    assert_eq!(repaired.armed(&definition.digest(), arm, now).repaired(&definition, now).1, None);
}

#[rstest]
#[case::instant("nightly@2026-06-01T11:00:00Z", Some(Named::Instant(at("2026-06-01T11:00:00Z"))))]
#[case::number("nightly#1780135503214", Some(Named::Number(1_780_135_503_214)))]
#[case::by_hand("nightly!0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11", Some(Named::Extra))]
#[case::backfill("nightly!2026-06-01T11:00:00Z", Some(Named::Backfill(at("2026-06-01T11:00:00Z"))))]
#[case::other_id("0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11", None)]
#[case::address("nightly@example.org", None)]
#[case::invoice("nightly#a-17", None)]
fn an_id_names_the_event_of_a_schedule(#[case] id: &str, #[case] named: Option<Named>) {
    assert_eq!(Named::read(id), named.map(|named| ("nightly", named)));
}

#[test]
fn the_id_of_a_link_is_read_again() {
    for (rule, named) in [
        (hourly(CatchUp::Last), Named::Instant(at("2026-06-01T11:00:00Z"))),
        (every(5), Named::Number(ms("2026-06-01T11:00:00Z"))),
    ] {
        let link = definition(rule).link(ms("2026-06-01T11:00:00Z"));
        assert_eq!(Named::read(&link.id()), Some(("nightly", named)));
    }
}

#[test]
fn a_schedule_is_overdue_unless_it_runs_or_is_paused() {
    let definition = definition(hourly(CatchUp::Last));
    let due = at("2026-06-01T11:00:00Z");
    let position = due.as_millisecond();
    let state = ScheduleState::default().armed("", Arm { position, due: position }, at("2026-06-01T10:00:00Z"));
    let late = at("2026-06-01T11:04:00Z");
    assert_eq!((state.overdue_since(late), state.overdue_since(due)), (Some(due), None));
    assert_eq!(state.clone().switched_on(&closed(late)).overdue_since(late), None);
    let running = state.started(&definition.link(position), late, at("2026-06-01T11:06:00Z"));
    assert_eq!(running.overdue_since(late), None);
    let lost = at("2026-06-01T11:07:00Z");
    assert_eq!(running.overdue_since(lost), Some(due));
}

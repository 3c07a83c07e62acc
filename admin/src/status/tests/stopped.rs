//! The findings about what is paused, and about circuit breakers.

use hatchery::internals::{
    breaker::{BreakerState, ClosedBy, Phase},
    switches::{Name, Pause, Paused, PausedBy, Switches},
};
use jiff::SignedDuration;
use rstest::rstest;

use super::{World, holder, mail};
use crate::status::{observation::Blind, severity::Severity};

#[rstest]
#[case::nothing(None, true)]
#[case::the_type(Some(Paused::Type(Name(mail()))), false)]
#[case::all(Some(Paused::All), false)]
#[case::another_type(Some(Paused::Type(Name("log".parse().expect("a word")))), true)]
fn a_paused_type_whose_events_wait_is_no_alarm(#[case] of: Option<Paused>, #[case] is_alarm: bool) {
    let mut world = World::new();
    world.fill("billing.processor.mail", 40);
    let since = world.seen.at;
    let pause = |of| Pause { of, by: PausedBy::Person, reason: "R".to_owned(), since, until: None };
    world.seen.switches = Some(of.map_or_else(Switches::default, |of| Switches::default().with(pause(of), since)));
    assert_eq!(world.findings().len(), usize::from(is_alarm), "{:?}", world.findings());
    let status = world.status();
    let mail = status.types.iter().find(|line| line.name == "mail").expect("a line");
    assert_eq!(mail.paused, Some(!is_alarm));
    // A pause that is over holds nothing.
    for pause in world.seen.switches.iter_mut().flat_map(|switches| &mut switches.pauses) {
        pause.until = Some(since);
    }
    assert_eq!(world.findings().len(), 1);
    assert!(world.status().pauses.is_empty());
}

/// Its last acknowledgement is longer ago than a run may take, because it was held meanwhile.
#[rstest]
#[case::paused(None, None, true)]
#[case::resumed(Some(10), None, true)]
#[case::resumed_long_ago(Some(300), None, false)]
#[case::its_breaker_was_closed(Some(300), Some(10), true)]
#[case::its_breaker_was_closed_long_ago(Some(300), Some(300), false)]
fn a_worker_of_a_type_that_was_held_is_not_frozen(
    #[case] resumed: Option<i64>,
    #[case] closed: Option<i64>,
    #[case] is_explained: bool,
) {
    let mut world = World::new();
    // A worker of a paused type consumes nothing.
    let queues: &[&str] = if resumed.is_some() { &["billing.processor.mail"] } else { &[] };
    let mut worker = holder(queues, 10, 90);
    worker.is_worker = true;
    world.seen.channels = Some(vec![worker]);
    world.queue("billing.processor.mail", |figures| figures.counts.messages_unacknowledged = Some(10));
    let ago = |seconds: i64| world.seen.at - SignedDuration::from_secs(seconds);
    let pause = Pause::of_person(Paused::Type(Name(mail())), "R", ago(400), None);
    let paused = Switches::default().with(pause, ago(400));
    world.seen.switches =
        Some(resumed.map_or(paused.clone(), |resumed| paused.without(&Paused::Type(Name(mail())), ago(resumed))));
    if let Some(closed) = closed {
        let phase = Phase::Closed { by: Some(ClosedBy::Person), at: Some(ago(closed).as_millisecond()) };
        world.seen.breakers.insert(mail(), BreakerState { phase, ..BreakerState::default() });
    }
    assert_eq!(world.findings().is_empty(), is_explained, "{:?}", world.findings());
}

#[test]
fn switches_that_workers_cannot_read_are_found_once_the_topology_is_applied() {
    let mut world = World::new();
    world.seen.switches_unread = Some("there is no stream billing.control".to_owned());
    let [finding] = &world.findings()[..] else { panic!("{:?}", world.findings()) };
    assert_eq!(finding.words(), "workers that start take no event: there is no stream billing.control");
    world.objects().exchanges.clear();
    assert!(!world.findings().contains(finding), "a topology that is not applied needs no other finding");
}

#[test]
fn a_policy_that_limits_the_switches_says_what_follows() {
    let mut world = World::new();
    world.policy("tidy", "control", "max-age");
    let [finding] = &world.findings()[..] else { panic!("{:?}", world.findings()) };
    let expected =
        "policy tidy (max-age) shadows billing.control: once its last message is gone, new workers start no event";
    assert_eq!(finding.words(), expected);
}

#[test]
fn an_open_circuit_breaker_is_found() {
    let mut world = World::of("version: 1\nname: billing\ntypes: { mail: { breaker: { cooldown: manual } } }\n");
    let at = (world.seen.at - SignedDuration::from_mins(3)).as_millisecond();
    let state = |phase: &str| {
        let text = format!(
            r#"{{"era":{{"number":7,"round":0}},"phase":{phase},"opening":{{"at":{at},"by":"a","errors":100,"runs":230,
            "reasons":["refused","no route"],"is_notified":true}}}}"#
        );
        BreakerState::parse(&text).expect("a state")
    };
    let of_mail = || "mail".parse().expect("a type");
    world.seen.breakers = [(of_mail(), state(&format!(r#"{{"open":{{"since":{at}}}}}"#)))].into();
    let findings = world.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    let expected = "the circuit breaker of mail is open, until a person closes it: it opened 3m ago at 100 errors of 230 runs: no route";
    assert_eq!(findings[0].words(), expected);
    assert_eq!(findings[0].command(), "topology breaker close mail");
    assert_eq!(findings[0].severity(), Severity::Stuck);
    world.seen.breakers = [(of_mail(), state(r#"{"closed":{"by":"person"}}"#))].into();
    assert_eq!(world.findings(), []);
}

/// A quiet type has no event to try, for as long as nobody publishes one.
#[rstest]
#[case::no_worker_has_asked(r#"{"open":{"since":0}}"#)]
#[case::a_worker_has_asked(r#"{"half-open":{"grants":[]}}"#)]
fn a_half_open_circuit_breaker_is_not_stuck(#[case] phase: &str) {
    let mut world = World::of("version: 1\nname: billing\ntypes: { mail: { breaker: {} } }\n");
    let at = (world.seen.at - SignedDuration::from_hours(2)).as_millisecond();
    let text = format!(
        r#"{{"era":{{"number":7,"round":0}},"phase":{phase},"opening":{{"at":{at},"by":"a","errors":100,"runs":230,
        "reasons":["refused"],"is_notified":true}}}}"#
    );
    let state = BreakerState::parse(&text).expect("a state");
    world.seen.breakers = [("mail".parse().expect("a type"), state)].into();
    let findings = world.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].severity(), Severity::Look);
    let expected = "the circuit breaker of mail is half-open and tries its next events: it opened 2h ago at 100 errors of 230 runs: refused";
    assert_eq!(findings[0].words(), expected);
}

#[test]
fn a_circuit_breaker_that_status_cannot_see_is_told() {
    let mut world = World::of(
        "version: 1\nname: billing\ntypes: { mail: { breaker: {} }, log: { register: off, breaker: {} }, post: {} }\n",
    );
    world.seen.blind = vec![Blind::Breakers { why: "WRONGTYPE".to_owned() }];
    let unknown = world.status().unknown;
    let expected = [
        "whether the circuit breakers of mail are open: WRONGTYPE",
        "whether the circuit breakers of log are open: with `register: off` each worker has its own, and its log tells",
    ];
    assert_eq!(unknown, expected);
}

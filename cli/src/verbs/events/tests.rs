//! The golden screens: `tests/screens/events.txt`. `UPDATE_GOLDEN=1` writes them anew.

use std::collections::BTreeMap;

use hatchery::{
    EventInfo, MoveOutcome, PayloadNotKept, State, Topology,
    internals::register::{
        DedupSlot, Note, Stage, Subject,
        index::{Entry, Shown},
        state::{Mark, SlotState},
    },
};
use hatchery_admin::{
    Unlisted,
    event_view::{EventView, view},
    live::Counts,
    location::{Placed, QueueCounts, locate},
};
use jiff::Timestamp;

use super::{
    bulk::{Act, DryRun},
    cancel, list, moving, show,
};
use crate::golden::screens;

const ID: &str = "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

/// When the screens are drawn.
fn now() -> Timestamp {
    at(1_000_000_000)
}

/// Returns an event that is due an hour from now.
pub(super) fn event(event_type: &str, reference: Option<&str>, stage: Stage, reason: Option<&str>) -> EventInfo {
    let subject = Subject {
        event_type: event_type.parse().expect("a word"),
        reference: reference.map(|text| text.parse().expect("a reference")),
        id: ID.to_owned(),
    };
    let slot = DedupSlot::Event(ID.to_owned());
    let note = Note { stage, attempts: 3, reason: reason.map(str::to_owned) };
    let entry = Some(Entry { subject: subject.clone(), slot: slot.clone(), due: at(1_000_003_725), note });
    EventInfo::of(&subject, Shown { slot, state: SlotState::default(), leased: None, entry })
}

fn failed() -> EventInfo {
    let reason = "retry: attempt=3 failed_at=2001-09-09T01:40:10.000Z error=\"KeyError: 'salary' is missing in the \
                  record of the employee, and its default is not allowed for this country\"";
    event("hr-import", Some("employee-104711"), Stage::Retry, Some(reason))
}

fn given_up() -> EventInfo {
    let reason = "given up: attempt=6 failed_at=2001-09-09T01:40:10.000Z error=\"HTTP 404 from http://mailer/send\"";
    event("mail", None, Stage::DeadLetter, Some(reason))
}

fn some() -> Vec<EventInfo> {
    let running = Shown {
        slot: DedupSlot::Immediate,
        state: SlotState {
            mark: Mark { version: 4, ..Mark::default() },
            newest: 4,
            begun: true,
            due: 999_999_000_000,
            ..SlotState::default()
        },
        leased: Some(true),
        entry: None,
    };
    let subject = Subject {
        event_type: "hr-import".parse().expect("a word"),
        reference: Some("従業員-1".parse().expect("a reference")),
        id: String::new(),
    };
    let long = "a-reference-with-many-words-of-which-the-last-one-tells-which-object-it-is";
    vec![
        EventInfo::of(&subject, running),
        event("mail", Some("ann"), Stage::Waiting, None),
        failed(),
        given_up(),
        event("a-type-with-a-long-name", Some(long), Stage::Waiting, Some("requeue: the office is closed")),
    ]
}

fn file() -> Topology {
    let text = "version: 1
name: billing
types: { hr-import: {}, mail: { retry: { delays: [1m] } } }
schedules:
  nightly: { type: hr-import, cron: '0 3 * * *' }
  poll: { type: mail, every: 5m }
";
    hatchery::file::read(text, "topology.yaml").expect("valid")
}

/// Returns events of schedules, and one of a publisher whose id only looks like one.
fn scheduled() -> Vec<EventInfo> {
    let of = |event_type: &str, reference: Option<&str>, id: &str| {
        let mut event = event(event_type, reference, Stage::Waiting, None);
        (event.id, event.slot) = (Some(id.to_owned()), DedupSlot::Event(id.to_owned()));
        event
    };
    vec![
        of("hr-import", Some("all"), "nightly@2001-09-09T03:00:00Z"),
        of("mail", None, "poll#1000000000000"),
        of("hr-import", Some("all"), &format!("nightly!{ID}")),
        of("mail", None, "nightly@2001-09-09T03:00:00Z"),
    ]
}

pub(super) fn views(events: &[EventInfo]) -> Vec<EventView> {
    events.iter().map(|event| view(event, &file())).collect()
}

fn unlisted() -> Vec<Unlisted> {
    let place = |place: &str, messages| Unlisted { place: place.to_owned(), messages };
    vec![place("billing.unrouted", 5), place("log", 120), place("billing.hatchery.* and .ladder.*", 12)]
}

#[test]
fn a_list_is_as_it_was_drawn() {
    screens("events/list", |columns| list::screen(&views(&some()), Some(&unlisted()), now(), columns));
    screens("events/list-one-type", |columns| list::screen(&views(&some()[1..2]), Some(&[]), now(), columns));
    screens("events/list-empty", |columns| list::screen(&[], None, now(), columns));
    screens("events/list-of-schedules", |columns| list::screen(&views(&scheduled()), Some(&[]), now(), columns));
}

#[test]
fn an_event_is_as_it_was_drawn() {
    let topology = file();
    let seen = seen(&[
        ("processor.hr-import", Some((3, 1, 0))),
        ("hatchery.1h", Some((9, 0, 0))),
        ("dead-letter.mail", Some((12, 0, 0))),
    ]);
    screens("events/show", |columns| {
        let blocks = some().into_iter().take(4).map(|event| {
            let place = locate(&event, &topology, &seen, now());
            show::block(&Placed::of(&event, &topology, place), now(), columns)
        });
        blocks.collect::<Vec<_>>().join("\n")
    });
    screens("events/show-of-schedules", |columns| {
        let blocks =
            scheduled().into_iter().map(|event| show::block(&Placed::of(&event, &topology, None), now(), columns));
        blocks.collect::<Vec<_>>().join("\n")
    });
}

/// The messages of a queue: those that are ready, those that a worker holds, and those that have expired. `None` if AMQP alone
/// tells, that nothing is ready.
type Given = Option<(u64, u64, u64)>;

/// Returns these counts of queues. All other queues are empty.
fn seen(given: &[(&str, Given)]) -> QueueCounts {
    let counts = |counts: Given| match counts {
        Some((ready, held, expired)) => Counts {
            messages: Some(ready + held + expired),
            messages_ready: Some(ready),
            messages_unacknowledged: Some(held),
            messages_dlx: Some(expired),
            messages_delayed: None,
            consumers: None,
        },
        None => Counts { messages_ready: Some(0), ..Counts::default() },
    };
    let all =
        ["unrouted", "hatchery.1h", "ladder.1.00-1s", "processor.hr-import", "processor.mail", "dead-letter.mail"];
    let mut seen = QueueCounts {
        timers: vec!["billing.hatchery.1h".into(), "billing.ladder.1.00-1s".into()],
        ..QueueCounts::default()
    };
    for name in all {
        seen.counts.insert(format!("billing.{name}"), counts(Some((0, 0, 0))));
    }
    for (name, given) in given {
        seen.counts.insert(format!("billing.{name}"), counts(*given));
    }
    seen.owned = Some(seen.counts.iter().map(|(name, counts)| (name.clone(), counts.messages)).collect());
    seen
}

/// Returns an event that was due some minutes ago.
fn due() -> EventInfo {
    let mut event = event("mail", None, Stage::Waiting, None);
    event.due = Some(at(999_999_000));
    event
}

#[test]
fn a_place_says_what_the_queues_tell_and_no_more() {
    let topology = file();
    let in_order = "version: 1\nname: billing\ntypes: { mail: { on-failure: block } }\n";
    let in_order = hatchery::file::read(in_order, "topology.yaml").expect("valid");
    let mut started = due();
    (started.state, started.leased, started.starts) = (State::Running, Some(false), 4);
    let mut new = due();
    new.due = Some(at(999_999_998));
    let waiting = event("mail", None, Stage::Waiting, None);
    let cases = [
        ("in its queue", due(), &topology, seen(&[("processor.mail", Some((12, 3, 0)))])),
        ("held by a worker", due(), &topology, seen(&[("processor.mail", Some((0, 1, 0)))])),
        ("no management API", due(), &topology, seen(&[("processor.mail", None)])),
        ("just due", new, &topology, seen(&[])),
        ("removed", due(), &topology, seen(&[])),
        ("perhaps unrouted", due(), &topology, seen(&[("unrouted", Some((2, 0, 0)))])),
        (
            "in a wedged timer",
            due(),
            &topology,
            seen(&[("processor.mail", Some((12, 0, 0))), ("hatchery.1h", Some((0, 0, 32)))]),
        ),
        ("started by a worker that is gone", started, &topology, seen(&[("processor.mail", Some((1, 0, 0)))])),
        ("blocked", due(), &in_order, seen(&[("processor.mail", Some((0, 7, 0)))])),
        ("not due", waiting.clone(), &topology, seen(&[("hatchery.1h", Some((5, 0, 0)))])),
        ("not due, perhaps unrouted", waiting.clone(), &topology, seen(&[("unrouted", Some((1, 0, 0)))])),
        ("not due, and removed", waiting, &topology, seen(&[])),
        ("a dead letter", given_up(), &topology, seen(&[("dead-letter.mail", Some((12, 0, 0)))])),
        ("a dead letter that was removed", given_up(), &topology, seen(&[])),
        ("the broker is away", due(), &topology, QueueCounts::default()),
    ];
    screens("events/places", |columns| {
        let blocks = cases.iter().map(|(case, event, topology, seen)| {
            let mut place = locate(event, topology, seen, now());
            if let Some(place) = place.as_mut().filter(|place| place.is_removed) {
                place.remedy(event, event.state == State::DeadLetter, now());
            }
            format!("# {case}\n{}", show::block(&Placed::of(event, topology, place), now(), columns))
        });
        blocks.collect::<Vec<_>>().join("\n")
    });
}

#[test]
fn a_dry_run_is_as_it_was_drawn() {
    let not_kept = BTreeMap::from([(PayloadNotKept::Now.to_string(), 2), (PayloadNotKept::DeadLetter.to_string(), 1)]);
    let would = DryRun { first: views(&some()), found: 1_204, not_kept };
    screens("events/run-now-dry-run", |columns| would.text(Act::RunNow, now(), columns));
    let would = DryRun { not_kept: BTreeMap::new(), ..would };
    screens("events/cancel-dry-run", |columns| would.text(Act::Cancel, now(), columns));
    screens("events/dry-run-of-nothing", |columns| DryRun::default().text(Act::Cancel, now(), columns));
}

#[test]
fn a_move_is_as_it_was_drawn() {
    let mut sum = moving::Sum::of(Act::Reschedule(at(1_000_010_000)));
    for outcome in [
        MoveOutcome::Done,
        MoveOutcome::Done,
        MoveOutcome::Running,
        MoveOutcome::Gone,
        MoveOutcome::NotKept(PayloadNotKept::Earlier),
    ] {
        sum.add(&outcome);
    }
    screens("events/reschedule", |columns| sum.text("Rescheduled to 2001-09-09T04:33:20Z", columns));
}

#[test]
fn a_cancel_is_as_it_was_drawn() {
    let sum = |cancelled, running, nothing| {
        let ids = (0..cancelled).take(7).map(|n| format!("0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b{n:02}")).collect();
        cancel::Sum { cancelled, running, nothing, ids }
    };
    screens("events/cancel", |columns| sum(1_204, 2, 3).text(columns));
    screens("events/cancel-named", |columns| sum(1, 1, 0).text_of("hr-import 1234", None, columns));
    screens("events/cancel-many-named", |columns| sum(7, 0, 0).text_of("hr-import 1234", None, columns));
    screens("events/cancel-unknown", |columns| sum(0, 0, 0).text_of("hr-import 1234", None, columns));
}

//! Protocols that are wrong in one place. Each has to break a property, which shows that the scenarios can tell.
//!
//! `cargo test -p hatchery-model mutants -- --nocapture` tells how it comes to it, by a shortest way.

use hatchery::internals::register::{
    Cancel, Cancelled, Claim, Claimed, DedupSlot, End, Reserve as Reserving, Reserved, Settle, Subject,
    state::{Mark, Shard, SlotState},
    transitions::At,
};
use jiff::Timestamp;

use crate::{
    account::Property,
    explorer::explore,
    message::Place,
    order::{
        Effect::{
            Acknowledge, Publish, PublishAgain, PublishCopy, PublishDatedAgain, Record, RecordAgain, Reserve,
            ReserveAgain, SettleCopied, SettleFinished,
        },
        Order,
    },
    register::uuid,
    rules::Rules,
    scenario::{Action, Answer, Fault, OURS, PEOPLE, Protocol, SCENARIOS, Scenario, TIMES, When},
    world::NOBODY,
};

/// The scenario of this name, with so many faults; Redis keeps what it knows, and two publishes are enough.
fn scenario(name: &str, faults: u8) -> Scenario {
    let mut all = SCENARIOS.iter().chain(PEOPLE).chain(TIMES);
    let found = *all.find(|scenario| scenario.name == name).expect("a scenario");
    Scenario { faults, ..found.of_two() }
}

/// The mutant breaks this property, and the protocol that runs does not.
#[expect(clippy::print_stdout, reason = "how it comes to it is read with --nocapture")]
fn breaks(property: Property, scenario: &Scenario, mutant: Protocol) {
    let found = explore(&Scenario { protocol: mutant, ..*scenario }, 3_000_000);
    let broken = found.broken.expect("the mutant is found out");
    println!("{}, after {} states:\n  {}", broken.property, found.states, broken.trace.join("\n  "));
    assert_eq!(broken.property, property);
    let ours = explore(&Scenario { protocol: OURS, ..*scenario }, found.states);
    assert!(ours.broken.is_none(), "the protocol that runs breaks it too");
}

fn order(order: Order) -> Protocol {
    Protocol { order, ..OURS }
}

fn rules(rules: &'static dyn Rules) -> Protocol {
    Protocol { rules, ..OURS }
}

fn key(subject: &Subject, slot: &DedupSlot) -> (String, String) {
    (subject.home(slot).to_string(), slot.field())
}

struct NoGenerations;

impl Rules for NoGenerations {
    fn claim(&self, shard: &mut Shard, at: At, call: &Claim) -> Claimed {
        let key = key(&call.subject, &call.stamp.slot);
        let before = shard.slots.get(&key).map(|slot| slot.mark);
        if let Some(slot) = shard.slots.get_mut(&key)
            && slot.mark.version == call.stamp.version
        {
            slot.mark.generation = slot.mark.generation.min(call.stamp.generation);
        }
        let answer = shard.claim(at, call);
        if let (Some(slot), Some(before)) = (shard.slots.get_mut(&key), before) {
            slot.mark = slot.mark.max(before);
        }
        answer
    }
}

#[test]
fn no_generation_comparison() {
    breaks(Property::SettledStaysSettled, &scenario("latest", 1), rules(&NoGenerations));
}

#[test]
fn record_before_publish() {
    let publish = &[Reserve, Record, Publish];
    breaks(Property::NothingLost, &scenario("latest", 1), order(Order { publish, ..Order::OURS }));
}

#[test]
fn settle_before_a_retry_is_published() {
    let retry = &[SettleCopied, PublishCopy, Acknowledge];
    breaks(Property::NothingLost, &scenario("latest", 1), order(Order { retry, ..Order::OURS }));
}

#[test]
fn settle_before_what_comes_again_is_published() {
    let requeue = &[ReserveAgain, SettleFinished, PublishAgain, RecordAgain, Acknowledge];
    breaks(Property::NothingLost, &scenario("latest", 1), order(Order { requeue, ..Order::OURS }));
}

#[test]
fn a_dead_letter_of_the_same_generation() {
    let shovelled = Scenario { actions: &[Action::Shovel], answers: &[Answer::DeadLetter], ..scenario("latest", 0) };
    breaks(Property::NothingLost, &shovelled, Protocol { letter_generation: 0, ..OURS });
}

struct FinishedPerReference;

impl Rules for FinishedPerReference {
    fn settle(&self, shard: &mut Shard, at: At, call: &Settle) {
        shard.settle(at, call);
        if call.end == End::Finished {
            let (home, _) = key(&call.subject, &call.stamp.slot);
            let mark = Mark { version: call.stamp.version, finished: true, generation: 0 };
            shard.slots.iter_mut().filter(|((of, _), _)| *of == home).for_each(|(_, slot)| slot.raise(mark));
        }
    }
}

#[test]
fn finished_per_reference() {
    // A date is published before something immediate.
    let programs = &[&[When::At(1), When::Now] as &[When]];
    let mixed = Scenario { programs, ..scenario("mixed", 0) };
    breaks(Property::NothingLost, &mixed, rules(&FinishedPerReference));
}

#[test]
fn a_lease_per_process() {
    // While somebody may interfere every order of steps is tried.
    let every_order = Scenario { actions: &[Action::Later], ..scenario("latest", 0) };
    breaks(Property::OneAtATime, &every_order, Protocol { token_per_process: true, ..OURS });
}

#[test]
fn a_cancel_that_counts_whenever_it_arrives() {
    for kinds in [&[Fault::CallLate], &[Fault::PersonCrashes]] {
        let late = Scenario { kinds, answers: &[], ..scenario("latest, cancelled and replayed", 1) };
        breaks(Property::NothingLost, &late, Protocol { cancels_late: true, ..OURS });
    }
}

struct SameAnswerAgain;

impl Rules for SameAnswerAgain {
    fn claim(&self, shard: &mut Shard, at: At, call: &Claim) -> Claimed {
        let lease = shard.leases.get(&call.subject.leaseholder(&call.terms).lease());
        match lease.filter(|lease| lease.token == call.token) {
            Some(lease) => Claimed::Run { fence: lease.fence, crashes: lease.crashes, stamp: call.stamp.clone() },
            None => shard.claim(at, call),
        }
    }
}

#[test]
fn a_claim_that_is_repeated_is_let_in_whatever_was_cancelled() {
    let kinds = &[Fault::AnswerLost];
    let lost = Scenario { kinds, answers: &[], ..scenario("latest, cancelled and replayed", 1) };
    breaks(Property::CancelledStaysCancelled, &lost, rules(&SameAnswerAgain));
}

struct CancelNewest;

impl Rules for CancelNewest {
    fn cancel(&self, shard: &mut Shard, at: At, call: &Cancel) -> Vec<Cancelled> {
        let before = shard.slots.clone();
        let answer = shard.cancel(at, call);
        for cancelled in &answer {
            let key = key(&call.subject, &cancelled.slot);
            let was = before.get(&key).cloned().unwrap_or_default();
            if let Some(slot) = shard.slots.get_mut(&key) {
                let (due, until) = (slot.due, slot.until);
                *slot = SlotState { due, until, ..was };
                slot.raise(Mark { version: slot.newest, finished: true, generation: 0 });
                slot.cancelled = true;
            }
        }
        answer
    }
}

#[test]
fn cancel_marks_the_newest() {
    let cancelled = scenario("latest, cancelled and replayed", 0);
    breaks(Property::CancelledStaysCancelled, &cancelled, rules(&CancelNewest));
}

#[test]
fn requeue_into_a_date_with_the_old_version() {
    let requeue = &[PublishDatedAgain, SettleFinished, Acknowledge];
    let actions = &[Action::CancelSlot(Place::DatedAt(1))];
    let cancelled = Scenario { actions, ..scenario("mixed, a date cancelled", 0) };
    breaks(Property::NothingLost, &cancelled, order(Order { requeue, ..Order::OURS }));
}

#[test]
fn requeue_of_what_is_stale_settles_it_as_done() {
    let unwanted = &[SettleFinished, Acknowledge];
    let run_now = scenario("latest, run now and a slot cancelled", 0);
    breaks(Property::NothingLost, &run_now, order(Order { unwanted, ..Order::OURS }));
    let programs = &[&[When::Now] as &[When]];
    let twice = Scenario { programs, answers_at_most: 2, kinds: CUT_OFF, ..scenario("latest", 2) };
    breaks(Property::NothingLost, &twice, order(Order { unwanted, ..Order::OURS }));
}

/// A worker that is cut off from everything, while its handlers go on, and another one that dies.
const CUT_OFF: &[Fault] = &[Fault::Disconnect, Fault::LeaseRunsOut, Fault::WorkerCrashes];

struct BlindToDue;

impl Rules for BlindToDue {
    fn settle(&self, shard: &mut Shard, at: At, call: &Settle) {
        shard.settle(at, call);
        if let Some(slot) = shard.slots.get_mut(&key(&call.subject, &call.stamp.slot))
            && !slot.open()
            && !slot.cancelled
        {
            let now = at.micros / 1_000;
            let dedup = i64::try_from(call.terms.dedup_retention.as_millis()).expect("a few ticks");
            slot.until = now + dedup.max(2 * (now - call.due.as_millisecond()));
        }
    }
}

#[test]
fn keys_that_expire_whatever_is_due() {
    breaks(Property::NewestLast, &scenario("dates far apart", 0), rules(&BlindToDue));
}

struct BlindToTheOldDate;

impl Rules for BlindToTheOldDate {
    fn reserve(&self, shard: &mut Shard, at: At, call: &Reserving) -> Reserved {
        let stays = call.asked_by.is_some() && matches!(call.slot, DedupSlot::Event(_));
        let due = if stays { Timestamp::UNIX_EPOCH } else { call.due };
        shard.reserve(at, &Reserving { due, ..call.clone() })
    }
}

/// What competes with nothing has reserved nothing: who brings it forward has to say when its former copy comes.
#[test]
fn a_date_that_is_brought_forward_and_forgotten() {
    breaks(Property::SettledStaysSettled, &scenario("off, dates brought forward", 0), rules(&BlindToTheOldDate));
}

struct FirstRaisesNoMark;

impl Rules for FirstRaisesNoMark {
    fn claim(&self, shard: &mut Shard, at: At, call: &Claim) -> Claimed {
        let key = key(&call.subject, &call.stamp.slot);
        let before = shard.slots.get(&key).map(|slot| slot.mark).unwrap_or_default();
        let answer = shard.claim(at, call);
        if let (DedupSlot::First, Some(slot)) = (&call.stamp.slot, shard.slots.get_mut(&key)) {
            slot.mark = before;
        }
        answer
    }
}

#[test]
fn a_claim_in_slot_f_that_raises_no_mark() {
    breaks(Property::NothingLost, &scenario("first", 1), rules(&FirstRaisesNoMark));
}

struct BlindToTheFence;

impl Rules for BlindToTheFence {
    fn settle(&self, shard: &mut Shard, at: At, call: &Settle) {
        shard.settle(at, &Settle { fence: i64::MAX, ..call.clone() });
    }
}

/// Redis has forgotten that another run has begun before: what was published in between counts on that one alone.
#[test]
fn a_late_settle_in_slot_f_that_ignores_the_fence() {
    let kinds = &[Fault::Disconnect, Fault::RedisEmptied, Fault::WorkerCrashes];
    let cut_off = Scenario { answers: &[], kinds, ..scenario("first", 3) };
    breaks(Property::NothingLost, &cut_off, rules(&BlindToTheFence));
}

struct EachRunCovers;

impl Rules for EachRunCovers {
    fn claim(&self, shard: &mut Shard, at: At, call: &Claim) -> Claimed {
        let answer = shard.claim(at, call);
        let slot = shard.slots.get_mut(&key(&call.subject, &call.stamp.slot));
        if let (DedupSlot::First, Claimed::Run { fence, .. }, Some(slot)) = (&call.stamp.slot, &answer, slot) {
            slot.covered = slot.covered.max(*fence);
        }
        answer
    }
}

#[test]
fn each_run_in_slot_f_covers_what_was_published_before_it() {
    let kinds = &[Fault::CallLate, Fault::LeaseRunsOut];
    let late = Scenario { kinds, answers: &[], ..scenario("first", 2) };
    breaks(Property::NothingLost, &late, rules(&EachRunCovers));
}

struct PeopleAreBlind;

impl Rules for PeopleAreBlind {
    fn settle(&self, shard: &mut Shard, at: At, call: &Settle) {
        let fence = if call.token == uuid(NOBODY) { i64::MAX } else { call.fence };
        shard.settle(at, &Settle { fence, ..call.clone() });
    }
}

#[test]
fn a_person_who_settles_in_slot_f_whatever_has_begun() {
    breaks(Property::NothingLost, &scenario("first, run now", 0), rules(&PeopleAreBlind));
}

//! Mutants: protocols with one error each. Each must break a property, which shows that the scenarios can find the
//! error.
//!
//! `cargo test -p hatchery-model mutants -- --nocapture` prints a shortest path to each broken property.

use hatchery::internals::register::{
    Cancel, Cancelled, Claim, ClaimAnswer, DedupSlot, End, Renew, Renewed, Reserve as Reserving, Reserved, Settle,
    Subject,
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

/// Returns the scenario of this name, with two publishes and so many faults. Redis loses no data.
fn scenario(name: &str, faults: u8) -> Scenario {
    let mut all = SCENARIOS.iter().chain(PEOPLE).chain(TIMES);
    let found = *all.find(|scenario| scenario.name == name).expect("a scenario");
    Scenario { faults, ..found.of_two() }
}

/// Checks that the mutant breaks this property, and that the real protocol does not.
#[expect(clippy::print_stdout, reason = "the path is read with --nocapture")]
fn breaks(property: Property, scenario: &Scenario, mutant: Protocol) {
    let found = explore(&Scenario { protocol: mutant, ..*scenario }, 3_000_000);
    let broken = found.broken.expect("the mutant is found out");
    println!("{}, after {} states:\n  {}", broken.property, found.states, broken.trace.join("\n  "));
    assert_eq!(broken.property, property);
    let ours = explore(&Scenario { protocol: OURS, ..*scenario }, found.states);
    assert!(ours.broken.is_none(), "the real protocol breaks it too");
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
    fn claim(&self, shard: &mut Shard, at: At, call: &Claim) -> ClaimAnswer {
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
fn a_claim_that_ignores_generations_starts_a_settled_copy() {
    breaks(Property::SettledStaysSettled, &scenario("latest", 1), rules(&NoGenerations));
}

#[test]
fn a_record_before_its_publish_loses_an_event() {
    let publish = &[Reserve, Record, Publish];
    breaks(Property::NothingLost, &scenario("latest", 1), order(Order { publish, ..Order::OURS }));
}

#[test]
fn a_settle_before_the_publish_of_a_retry_loses_an_event() {
    let retry = &[SettleCopied, PublishCopy, Acknowledge];
    breaks(Property::NothingLost, &scenario("latest", 1), order(Order { retry, ..Order::OURS }));
}

#[test]
fn a_settle_before_the_publish_of_a_requeue_loses_an_event() {
    let requeue = &[ReserveAgain, SettleFinished, PublishAgain, RecordAgain, Acknowledge];
    breaks(Property::NothingLost, &scenario("latest", 1), order(Order { requeue, ..Order::OURS }));
}

#[test]
fn a_dead_letter_of_the_same_generation_is_lost_when_it_is_shovelled_back() {
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
fn a_settle_that_finishes_the_whole_reference_loses_an_event() {
    // A dated event is published before an immediate one.
    let programs = &[&[When::At(1), When::Now] as &[When]];
    let mixed = Scenario { programs, ..scenario("mixed", 0) };
    breaks(Property::NothingLost, &mixed, rules(&FinishedPerReference));
}

#[test]
fn a_lease_per_process_lets_two_handlers_run_at_once() {
    // The model tries every order of steps only as long as a person may still act.
    let every_order = Scenario { actions: &[Action::Later], ..scenario("latest", 0) };
    breaks(Property::OneAtATime, &every_order, Protocol { token_per_process: true, ..OURS });
}

#[test]
fn a_cancel_that_counts_whenever_it_arrives_loses_an_event() {
    for kinds in [&[Fault::CallLate], &[Fault::PersonCrashes]] {
        let late = Scenario { kinds, answers: &[], ..scenario("latest, cancelled and replayed", 1) };
        breaks(Property::NothingLost, &late, Protocol { cancels_late: true, ..OURS });
    }
}

struct SameAnswerAgain;

impl Rules for SameAnswerAgain {
    fn claim(&self, shard: &mut Shard, at: At, call: &Claim) -> ClaimAnswer {
        let lease = shard.leases.get(&call.subject.leaseholder(&call.terms).lease());
        match lease.filter(|lease| lease.token == call.token) {
            Some(lease) => ClaimAnswer::Run { fence: lease.fence, crashes: lease.crashes, stamp: call.stamp.clone() },
            None => shard.claim(at, call),
        }
    }
}

#[test]
fn a_repeated_claim_that_gets_the_same_answer_starts_a_cancelled_event() {
    let kinds = &[Fault::AnswerLost];
    let lost = Scenario { kinds, answers: &[], ..scenario("latest, cancelled and replayed", 1) };
    breaks(Property::CancelledStaysCancelled, &lost, rules(&SameAnswerAgain));
}

struct CancelledFromStale;

impl Rules for CancelledFromStale {
    fn renew(&self, shard: &mut Shard, at: At, call: &Renew) -> Renewed {
        let (version, generation) = (call.stamp.counted_version(&call.subject), call.stamp.generation);
        let slot = shard.slots.get(&key(&call.subject, &call.stamp.slot));
        let stale = slot.is_some_and(|slot| slot.stale(version, generation));
        match shard.renew(at, call) {
            Renewed::Held if stale => Renewed::Cancelled,
            answer => answer,
        }
    }
}

/// A person sends the next copy, and an older one runs when the person settles it: nothing else would run.
#[test]
fn a_renewal_that_takes_stale_for_cancelled_loses_an_event_that_is_run_now_or_rescheduled() {
    let off = scenario("off, dates brought forward", 0);
    for scenario in [
        scenario("latest, run now and a slot cancelled", 0),
        Scenario { actions: &[Action::RunNow], ..off },
        Scenario { actions: &[Action::Reschedule], ..off },
    ] {
        breaks(Property::NothingLost, &scenario, rules(&CancelledFromStale));
    }
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
fn a_cancel_that_marks_only_the_newest_version_lets_a_cancelled_event_start() {
    let cancelled = scenario("latest, cancelled and replayed", 0);
    breaks(Property::CancelledStaysCancelled, &cancelled, rules(&CancelNewest));
}

#[test]
fn a_requeue_into_a_date_with_the_old_version_loses_an_event() {
    let requeue = &[PublishDatedAgain, SettleFinished, Acknowledge];
    let actions = &[Action::CancelSlot(Place::DatedAt(1))];
    let cancelled = Scenario { actions, ..scenario("mixed, a date cancelled", 0) };
    breaks(Property::NothingLost, &cancelled, order(Order { requeue, ..Order::OURS }));
}

#[test]
fn a_stale_requeue_that_is_settled_as_done_loses_an_event() {
    let unwanted = &[SettleFinished, Acknowledge];
    let run_now = scenario("latest, run now and a slot cancelled", 0);
    breaks(Property::NothingLost, &run_now, order(Order { unwanted, ..Order::OURS }));
    let programs = &[&[When::Now] as &[When]];
    let twice = Scenario { programs, answers_at_most: 2, kinds: CUT_OFF, ..scenario("latest", 2) };
    breaks(Property::NothingLost, &twice, order(Order { unwanted, ..Order::OURS }));
}

/// The faults by which a worker loses its connections while its handlers go on, and another worker dies.
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
fn a_key_that_expires_before_a_due_copy_lets_an_older_payload_start() {
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

/// An event in its own slot was published without *reserve*. So a person who brings it forward must reserve with the
/// date of its former copy.
#[test]
fn an_event_that_is_brought_forward_runs_again_if_its_old_date_is_forgotten() {
    breaks(Property::SettledStaysSettled, &scenario("off, dates brought forward", 0), rules(&BlindToTheOldDate));
}

struct FirstRaisesNoMark;

impl Rules for FirstRaisesNoMark {
    fn claim(&self, shard: &mut Shard, at: At, call: &Claim) -> ClaimAnswer {
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
fn a_claim_in_slot_f_that_raises_no_mark_loses_an_event() {
    breaks(Property::NothingLost, &scenario("first", 1), rules(&FirstRaisesNoMark));
}

struct BlindToTheFence;

impl Rules for BlindToTheFence {
    fn settle(&self, shard: &mut Shard, at: At, call: &Settle) {
        shard.settle(at, &Settle { fence: i64::MAX, ..call.clone() });
    }
}

/// Redis has lost that another run began before. Only that run serves the events that were published in between.
#[test]
fn a_late_settle_in_slot_f_that_ignores_the_fence_loses_an_event() {
    let kinds = &[Fault::Disconnect, Fault::RedisEmptied, Fault::WorkerCrashes];
    let cut_off = Scenario { answers: &[], kinds, ..scenario("first", 3) };
    breaks(Property::NothingLost, &cut_off, rules(&BlindToTheFence));
}

struct EachRunCovers;

impl Rules for EachRunCovers {
    fn claim(&self, shard: &mut Shard, at: At, call: &Claim) -> ClaimAnswer {
        let answer = shard.claim(at, call);
        let slot = shard.slots.get_mut(&key(&call.subject, &call.stamp.slot));
        if let (DedupSlot::First, ClaimAnswer::Run { fence, .. }, Some(slot)) = (&call.stamp.slot, &answer, slot) {
            slot.covered = slot.covered.max(*fence);
        }
        answer
    }
}

#[test]
fn a_slot_f_in_which_each_run_covers_loses_an_event() {
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
fn a_replay_in_slot_f_that_ignores_the_fence_loses_an_event() {
    let emptied = Scenario { kinds: &[Fault::RedisEmptied], ..scenario("first, replayed beside a retry", 1) };
    breaks(Property::NothingLost, &emptied, rules(&PeopleAreBlind));
}

/// A run that begins between the copy and its settlement serves other events too. If it fails, its next copy is stale.
#[test]
fn a_run_now_in_slot_f_that_settles_its_former_copy_loses_an_event() {
    let move_anew = &[PublishCopy, SettleCopied];
    let protocol = Protocol { rules: &PeopleAreBlind, ..order(Order { move_anew, ..Order::OURS }) };
    breaks(Property::NothingLost, &scenario("first, run now", 0), protocol);
}

//! Checks the properties against the account.

use crate::{
    account::{Property, Settled},
    message::{Message, Place, Set, only},
    scenario::Scenario,
    world::{Ending, Phase, World},
};

/// Checks and notes that the register has let this copy start. Returns the events that the run stands for.
pub(crate) fn starts(world: &mut World, scenario: &Scenario, message: &Message, fence: i64) -> Set {
    let Message { event, place, version, generation, .. } = *message;
    let runs = world.workers.iter().flatten().any(|task| task.phase == Phase::Running && !task.lost);
    let account = &mut world.account;
    if scenario.exclusive && runs {
        account.breaks(Property::OneAtATime);
    }
    let started = account.started.iter_mut().find(|(of, _)| *of == place);
    match started {
        Some((_, newest)) if version < *newest => account.breaks(Property::NewestLast),
        Some((_, newest)) => *newest = version,
        None => account.started.push((place, version)),
    }
    let below = account.below.iter().any(|(of, below)| *of == place && version < *below);
    // An event in its own slot is not reached by a cancel of its reference.
    let never = !matches!(place, Place::Alone(_)) && account.never & only(event) != 0;
    if below || never {
        account.breaks(Property::CancelledStaysCancelled);
    }
    let settled = |settled: &Settled| (settled.place, settled.version) == (place, version);
    if account.settled.iter().any(|one| settled(one) && generation <= one.generation) {
        account.breaks(Property::SettledStaysSettled);
    }
    account.begins(message, fence)
}

/// Notes that a run was settled.
pub(crate) fn settled(world: &mut World, message: &Message, fence: i64, end: Ending) {
    // In slot `f` a person's settle has no effect if a run has begun since the person looked. That run goes on.
    let first = world.register.slots.iter().find(|(place, _)| *place == Place::First && message.place == Place::First);
    if first.is_some_and(|(_, slot)| fence < slot.covered) {
        return;
    }
    let account = &mut world.account;
    let Message { place, version, generation, .. } = *message;
    if account.redis_lost {
        return;
    }
    let generation = if end == Ending::Finished { i64::MAX } else { generation };
    match account.settled.iter_mut().find(|one| (one.place, one.version) == (place, version)) {
        Some(one) => one.generation = one.generation.max(generation),
        None => account.settled.push(Settled { place, version, generation }),
    }
}

/// Returns the events that a cancel is to cancel: all that have a version by now, in the slots that the cancel reaches.
pub(crate) fn asked(world: &World, reached: impl Fn(Place) -> bool) -> Set {
    let given = world.account.given.iter().filter(|given| reached(given.place));
    given.fold(0, |set, given| set | given.serves | only(given.event))
}

/// Notes that a cancel took effect but its caller did not get the answer. The events may be cancelled, and nothing more
/// is promised about them.
pub(crate) fn cancelled_unheard(world: &mut World, asked: Set) {
    world.account.cancelled |= asked;
}

/// Notes that a cancel has returned. `all` is a cancel of the whole reference, which also reaches the events that a
/// running handler will requeue.
pub(crate) fn cancelled(world: &mut World, places: &[Place], all: bool, below: i64) {
    let account = &mut world.account;
    let mut set = 0;
    for given in &account.given {
        let reached = all || places.contains(&given.place);
        if reached {
            set |= given.serves | only(given.event);
            account.never |= if all { only(given.event) } else { 0 };
        }
    }
    for place in places {
        if let Place::Alone(event) = place {
            set |= only(*event);
        }
        account.below.retain(|(of, _)| of != place);
        account.below.push((*place, below));
    }
    account.cancelled |= set;
    if account.redis_lost {
        account.never = 0;
        account.below.clear();
    }
}

/// Checks, when nothing more can happen, that no confirmed event is lost.
pub(crate) fn at_the_end(world: &World) -> Option<Property> {
    let account = &world.account;
    let letters = world.letters.iter().fold(0, |set, letter| set | letter.serves | only(letter.event));
    let lost = account.confirmed & !(account.handled | account.cancelled | letters);
    (lost != 0).then_some(Property::NothingLost)
}

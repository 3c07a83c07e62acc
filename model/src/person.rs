//! What people do: `docs/register.md`, from *Reschedule* to *Cancel of one slot*.

use hatchery::domain::register::{Postponed, state::SlotState};

use crate::{
    order::Effects,
    properties,
    publisher::later,
    register::by_id,
    scenario::{Action, Fault, Scenario},
    step::Step,
    worker,
    world::{Doing, Message, NOBODY, Person, Place, World},
};

/// What people can do next.
pub(crate) fn steps(world: &World, scenario: &Scenario, steps: &mut Vec<Step>) {
    if let Some(person) = &world.person {
        steps.push(Step::Person(None));
        if world.faults > 0 && scenario.allows(Fault::PersonCrashes) {
            steps.push(Step::PersonCrashes);
        }
        let publishes = matches!(person.doing.todo.first(), Some(crate::order::Effect::PublishCopy));
        if publishes && world.faults > 0 && scenario.allows(Fault::ConfirmLost) {
            steps.push(Step::Person(Some(Fault::ConfirmLost)));
        }
        return;
    }
    for (n, action) in scenario.actions.iter().enumerate().filter(|(n, _)| world.actions & (1 << n) != 0) {
        let about = match action {
            Action::CancelReference | Action::CancelSlot(_) | Action::CancelEvent(_) => 1,
            Action::Replay | Action::Shovel => world.letters.len(),
            Action::RunNow | Action::Reschedule | Action::Later => world.register.slots.len(),
        };
        steps.extend((0..about).map(|about| Step::Acts { action: n, about }));
    }
}

/// A person begins.
pub(crate) fn acts(world: &mut World, scenario: &Scenario, action: usize, about: usize) -> Option<()> {
    world.actions &= !(1 << action);
    let order = &scenario.protocol.order;
    match scenario.actions.get(action)? {
        Action::CancelReference => cancel(world, scenario, None),
        Action::CancelSlot(place) => cancel(world, scenario, Some(*place)),
        Action::CancelEvent(event) => {
            let places = world.cancel(scenario, by_id(*event), None);
            properties::cancelled(world, &places, false, world.given);
        }
        Action::Shovel => {
            let letter = world.letters.remove(about);
            world.queue.push(letter);
        }
        Action::Replay => {
            let letter = *world.letters.get(about)?;
            // One that is stale or replaced is shown as such and left alone.
            let slot = slot(world, letter.place);
            let replaced = letter.place != Place::First && letter.version < slot.newest;
            if slot.stale(letter.version, letter.generation) || replaced {
                return None;
            }
            world.letters.remove(about);
            begin(world, letter, slot.covered, true, order.replay);
        }
        Action::RunNow => {
            let (message, covered) = waiting(world, about)?;
            begin(world, message, covered, false, order.run_now);
        }
        Action::Reschedule => {
            let (message, covered) = waiting(world, about)?;
            begin(world, message, covered, false, order.reschedule);
        }
        Action::Later => {
            let (message, _) = waiting(world, about)?;
            let to = later(world, scenario, 2);
            if world.put_off(scenario, &message, to) != Postponed::Until {
                return None;
            }
        }
    }
    Some(())
}

/// The library says which slots it has cancelled; a cancel of the reference is held to all.
fn cancel(world: &mut World, scenario: &Scenario, place: Option<Place>) {
    let places = world.cancel(scenario, crate::register::subject(0), place.map(Place::slot));
    properties::cancelled(world, &places, place.is_none(), world.given);
}

/// In slot `f` a person settles with what the slot has `covered` when it is looked at, as a run does with its fence: what
/// has begun since then stands for it.
fn begin(world: &mut World, message: Message, covered: i64, letter: bool, todo: Effects) {
    let stands = world.account.stands_for(&message, message.version.max(covered));
    let doing = Doing { message, stands, fence: covered, token: NOBODY, todo, again: None };
    world.person = Some(Person { letter, doing });
}

fn slot(world: &World, place: Place) -> SlotState {
    world.register.slots.iter().find(|(of, _)| *of == place).map(|(_, slot)| slot.clone()).unwrap_or_default()
}

/// What waits in a slot, as the register shows it, with the payload that was kept, and what is covered; None where it runs,
/// or nothing waits.
fn waiting(world: &World, about: usize) -> Option<(Message, i64)> {
    let (place, slot) = world.register.slots.get(about)?;
    let newest = if slot.newest > slot.covered { slot.newest } else { 0 };
    let version = newest.max(slot.mark.version);
    let at_mark = version == slot.mark.version;
    if version == 0 || (at_mark && (slot.mark.finished || slot.begun)) {
        return None;
    }
    let given = world.account.given.iter().find(|given| (given.place, given.version) == (*place, version))?;
    let generation = if at_mark { slot.mark.generation } else { 0 };
    let (event, place, serves) = (given.event, *place, given.serves);
    let message = Message { event, place, version, generation, attempts: 0, due: world.now, serves };
    Some((message, slot.covered))
}

/// The next thing that the person does.
pub(crate) fn goes_on(world: &mut World, scenario: &Scenario, fault: Option<Fault>) -> Option<()> {
    let person = world.person.take()?;
    let doing = worker::carry_out(world, scenario, person.doing, fault, false)?;
    // Told that it is not wanted any more, a person stops.
    if !doing.todo.is_empty() && doing.todo != scenario.protocol.order.unwanted {
        world.person = Some(Person { doing, ..person });
    }
    Some(())
}

/// The program that does it is killed. A letter that is not acknowledged is there again.
pub(crate) fn crashes(world: &mut World) -> Option<()> {
    let person = world.person.take()?;
    if person.letter {
        world.letters.push(person.doing.message);
    }
    Some(())
}

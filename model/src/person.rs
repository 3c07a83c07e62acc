//! The steps of people: `docs/register.md`, *Rules for people's commands*.

use hatchery::internals::register::{Postponed, state::SlotState};

use crate::{
    message::{Message, Place, only},
    order::{Effect, Effects},
    properties,
    publisher::later,
    register::by_id,
    scenario::{Action, Fault, Protocol, Scenario},
    step::Step,
    worker,
    world::{Doing, Event, Late, NOBODY, Person, World},
};

/// Adds the steps that people can take next.
pub(crate) fn steps(world: &World, scenario: &Scenario, steps: &mut Vec<Step>) {
    if let Some(person) = &world.person {
        steps.push(Step::Person(None));
        if world.faults > 0 && scenario.allows(Fault::PersonCrashes) {
            steps.push(Step::PersonCrashes);
        }
        let publishes = matches!(person.doing.todo.first(), Some(Effect::PublishCopy | Effect::PublishAnew));
        if publishes && world.faults > 0 && scenario.allows(Fault::ConfirmLost) {
            steps.push(Step::Person(Some(Fault::ConfirmLost)));
        }
        return;
    }
    for (n, action) in scenario.actions.iter().enumerate().filter(|(n, _)| world.actions & (1 << n) != 0) {
        let about = match action {
            Action::CancelReference | Action::CancelSlot(_) | Action::CancelEvent(_) => 1,
            Action::Replay | Action::Shovel => world.letters.len(),
            Action::RunNow | Action::Reschedule => world.register.slots.len() + world.events.len(),
            Action::Later => world.register.slots.len(),
        };
        steps.extend((0..about).map(|about| Step::Acts { action: n, about, fault: None }));
        if action.cancels() && world.faults > 0 {
            let faults = [Fault::AnswerLost, Fault::CallLate, Fault::PersonCrashes].into_iter();
            let faults = faults.filter(|fault| scenario.allows(*fault) && scenario.protocol.knows(*fault));
            steps.extend(faults.map(|fault| Step::Acts { action: n, about: 0, fault: Some(fault) }));
        }
    }
}

/// Begins an action of a person.
pub(crate) fn acts(
    world: &mut World,
    scenario: &Scenario,
    number: usize,
    about: usize,
    fault: Option<Fault>,
) -> Option<()> {
    let action = *scenario.actions.get(number)?;
    if let Some(fault) = fault {
        return cancels_with(world, scenario, number, action, fault);
    }
    world.actions &= !(1 << number);
    let order = &scenario.protocol.order;
    match action {
        Action::CancelReference | Action::CancelSlot(_) | Action::CancelEvent(_) => {
            let places = cancel(world, scenario, action)?;
            properties::cancelled(world, &places, action == Action::CancelReference, world.highest());
        }
        Action::Shovel => {
            let letter = world.letters.remove(about);
            world.queue.push(letter);
        }
        Action::Replay => {
            let letter = *world.letters.get(about)?;
            // A letter that is stale or replaced is shown as such, and not replayed.
            let slot = slot(world, letter.place);
            let replaced = slot.replaces(&letter.place.slot().field(), letter.version);
            if slot.stale(letter.version, letter.generation) || replaced {
                return None;
            }
            world.letters.remove(about);
            begin(world, letter, slot.covered, true, order.replay);
        }
        Action::RunNow => {
            let message = waiting(world, scenario, about)?;
            let todo = match message.place {
                Place::Alone(_) => order.move_alone,
                Place::First => order.move_anew,
                _ => order.run_now,
            };
            begin(world, message, 0, false, todo);
        }
        Action::Reschedule => {
            let message = waiting(world, scenario, about)?;
            let todo = match message.place {
                Place::Alone(_) => order.move_alone,
                Place::First => order.move_anew,
                _ => order.reschedule,
            };
            begin(world, message, 0, false, todo);
            if matches!(message.place, Place::Alone(_) | Place::First) {
                let at = later(world, scenario, 1);
                world.person.as_mut()?.doing.again = Some((0, at));
            }
        }
        Action::Later => {
            let message = waiting(world, scenario, about)?;
            let to = later(world, scenario, 2);
            if world.put_off(scenario, &message, to) != Postponed::Until {
                return None;
            }
        }
    }
    Some(())
}

/// Makes the register's call *cancel*, and returns the slots that it has cancelled.
pub(crate) fn cancel(world: &mut World, scenario: &Scenario, action: Action) -> Option<Vec<Place>> {
    let of_reference = crate::register::subject(0);
    Some(match action {
        Action::CancelReference => world.cancel(scenario, of_reference, None),
        Action::CancelSlot(place) => world.cancel(scenario, of_reference, Some(place.slot())),
        Action::CancelEvent(event) => world.cancel(scenario, by_id(event), None),
        _ => return None,
    })
}

/// Cancels with a fault: the answer is lost, the call arrives a second time later, or it arrives after its caller has
/// given up. A person who got no answer may try again.
fn cancels_with(world: &mut World, scenario: &Scenario, number: usize, action: Action, fault: Fault) -> Option<()> {
    let asked = match action {
        Action::CancelReference => properties::asked(world, |_| true),
        Action::CancelSlot(of) => properties::asked(world, |place| place == of),
        Action::CancelEvent(event) => only(event),
        _ => return None,
    };
    match fault {
        Fault::AnswerLost => {
            cancel(world, scenario, action)?;
            properties::cancelled_unheard(world, asked);
            return Some(());
        }
        Fault::CallLate => acts(world, scenario, number, 0, None)?,
        _ => {}
    }
    world.late.push(Late::Cancel { action: u8::try_from(number).ok()?, asked });
    Some(())
}

impl Action {
    /// Tells whether the action is a cancel, which is a single call to the register.
    fn cancels(self) -> bool {
        matches!(self, Self::CancelReference | Self::CancelSlot(_) | Self::CancelEvent(_))
    }
}

impl Protocol {
    /// Tells whether a fault of a cancel makes a difference. In the real protocol a cancel whose caller no longer waits
    /// for it has no effect, as if it had never arrived.
    fn knows(&self, fault: Fault) -> bool {
        fault == Fault::AnswerLost || self.cancels_late
    }
}

/// Begins the effects of an action. A person settles a letter with the slot's `covered` at this moment in place of a fence, so
/// that the settle has no effect in slot `f` if a run has begun since. Other slots have no `covered`.
fn begin(world: &mut World, message: Message, covered: i64, letter: bool, todo: Effects) {
    let stands = world.account.stands_for(&message, message.version.max(covered));
    let doing = Doing { message, stands, fence: covered, token: NOBODY, todo, again: None };
    world.person = Some(Person { letter, doing });
}

fn slot(world: &World, place: Place) -> SlotState {
    world.register.slots.iter().find(|(of, _)| *of == place).map(|(_, slot)| slot.clone()).unwrap_or_default()
}

/// Returns the copy that waits in a slot, as the register shows it with its kept payload. Returns `None` if the event runs or
/// nothing waits.
///
/// `about` counts the slots first, and then the events in their own slots.
fn waiting(world: &World, scenario: &Scenario, about: usize) -> Option<Message> {
    let Some((place, slot)) = world.register.slots.get(about) else {
        return alone(world, scenario, about - world.register.slots.len());
    };
    let newest = if slot.newest > slot.covered { slot.newest } else { 0 };
    let version = newest.max(slot.mark.version);
    let at_mark = version == slot.mark.version;
    if version == 0 || (at_mark && (slot.mark.finished || slot.begun)) {
        return None;
    }
    let given = world.account.given.iter().find(|given| (given.place, given.version) == (*place, version))?;
    let generation = if at_mark { slot.mark.generation } else { 0 };
    let (event, place, serves) = (given.event, *place, given.serves);
    Some(Message { event, place, version, generation, attempts: 0, due: world.now, serves })
}

/// Returns the copy of an event in its own slot, if the index would show it. The index is not part of the world. It
/// shows such an event from the confirm until the event is handled or cancelled, or until its slot (or, without a slot,
/// its date) expires.
fn alone(world: &World, scenario: &Scenario, about: usize) -> Option<Message> {
    let (event, known) = (u8::try_from(about).ok()?, world.events.get(about)?);
    let Event { place, due, .. } = *known;
    let account = &world.account;
    let waits = account.confirmed & !account.handled & !account.cancelled & only(event) != 0;
    if !waits || place != Place::Alone(event) {
        return None;
    }
    let slot = slot(world, place);
    let lasts = scenario.time.is_none_or(|time| due + time.backlog_retention > world.now);
    if slot.mark.finished || slot.begun || (slot.until == 0 && !lasts) {
        return None;
    }
    let generation = slot.mark.generation;
    Some(Message { event, place, version: 0, generation, attempts: 0, due, serves: only(event) })
}

/// Does the person's next effect.
pub(crate) fn goes_on(world: &mut World, scenario: &Scenario, fault: Option<Fault>) -> Option<()> {
    let person = world.person.take()?;
    let doing = worker::carry_out(world, scenario, person.doing, fault, false)?;
    // A person stops if the register answers that the event is not wanted any more.
    if !doing.todo.is_empty() && doing.todo != scenario.protocol.order.unwanted {
        world.person = Some(Person { doing, ..person });
    }
    Some(())
}

/// Kills the person's program. A dead letter that was not acknowledged goes back to its queue.
pub(crate) fn crashes(world: &mut World) -> Option<()> {
    let person = world.person.take()?;
    if person.letter {
        world.letters.push(person.doing.message);
    }
    Some(())
}

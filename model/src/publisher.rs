//! The steps of a publisher, as in `src/publish/publisher.rs`.

use hatchery::internals::register::Reserved;

use crate::{
    message::{Message, Place, Tick, only},
    order::Effect,
    scenario::{Fault, Scenario, When},
    step::Step,
    world::{Event, Late, Publisher, World},
};

/// Returns the events of the scenario before their publish.
pub(crate) fn events(scenario: &Scenario) -> Vec<Event> {
    let all = scenario.programs.iter().copied().flatten();
    let place = |event| Place::Alone(u8::try_from(event).unwrap_or(u8::MAX));
    all.enumerate().map(|(event, _)| Event { place: place(event), version: 0, due: 0 }).collect()
}

/// Returns the events of a publisher with their due times.
fn program(scenario: &Scenario, publisher: usize) -> impl Iterator<Item = (u8, When)> {
    let before: usize = scenario.programs.iter().take(publisher).map(|program| program.len()).sum();
    let program = scenario.programs.get(publisher).copied().unwrap_or_default();
    program.iter().enumerate().map(move |(n, when)| (u8::try_from(before + n).unwrap_or(u8::MAX), *when))
}

/// Adds the steps that publishers can take next.
pub(crate) fn steps(world: &World, scenario: &Scenario, steps: &mut Vec<Step>) {
    for (n, publisher) in world.publishers.iter().enumerate() {
        let next = match publisher.todo.first() {
            Some(next) => *next,
            None if usize::from(publisher.begun) < program(scenario, n).count() => Effect::Reserve,
            None => continue,
        };
        let mut push = |fault| {
            if world.faults > 0 && scenario.allows(fault) {
                steps.push(Step::Publisher(n, Some(fault)));
            }
        };
        if !publisher.todo.is_empty() {
            push(Fault::PublisherCrashes);
        }
        match next {
            Effect::Reserve if (scenario.place)(When::Now).is_some() => push(Fault::NoVersion),
            Effect::Publish => push(Fault::ConfirmLost),
            Effect::Record => push(Fault::CallLate),
            _ => {}
        }
        steps.push(Step::Publisher(n, None));
    }
}

/// Takes a step of a publisher.
pub(crate) fn take(world: &mut World, scenario: &Scenario, n: usize, fault: Option<Fault>) -> Option<()> {
    let mut publisher = *world.publishers.get(n)?;
    if fault == Some(Fault::PublisherCrashes) {
        // The publisher is started again, and goes on with its next event.
        *world.publishers.get_mut(n)? = Publisher { todo: &[], ..publisher };
        return Some(());
    }
    if publisher.todo.is_empty() {
        publisher.begun += 1;
    }
    let (event, when) = program(scenario, n).nth(usize::from(publisher.begun) - 1)?;
    if publisher.todo.is_empty() {
        begin(world, scenario, event, when, fault)?;
        let order = &scenario.protocol.order;
        if let Place::Alone(_) = world.events.get(usize::from(event))?.place {
            publisher.todo = order.publish_alone;
            *world.publishers.get_mut(n)? = publisher;
            return Some(());
        }
        publisher.todo = order.publish;
    }
    go_on(world, scenario, n, publisher, event, fault)
}

/// Sets the slot and the due time of an event.
fn begin(world: &mut World, scenario: &Scenario, event: u8, when: When, fault: Option<Fault>) -> Option<()> {
    let due = match when {
        When::At(tick) if scenario.time.is_some() => tick.max(world.now),
        _ => world.now,
    };
    let alone = fault == Some(Fault::NoVersion);
    let place = (scenario.place)(when).filter(|_| !alone).unwrap_or(Place::Alone(event));
    *world.events.get_mut(usize::from(event))? = Event { place, version: 0, due };
    Some(())
}

fn go_on(
    world: &mut World,
    scenario: &Scenario,
    n: usize,
    mut publisher: Publisher,
    number: u8,
    fault: Option<Fault>,
) -> Option<()> {
    let event = *world.events.get(usize::from(number))?;
    let Event { place, version, due } = event;
    let (effect, rest) = publisher.todo.split_first()?;
    match effect {
        Effect::Reserve => {
            let Reserved::Version(version) = world.reserve(scenario, number, place, due, None) else { return None };
            world.account.gives(place, version, number, only(number));
            *world.events.get_mut(usize::from(number))? = Event { version, ..event };
        }
        Effect::Publish => {
            let serves = only(number);
            let message = Message { event: number, place, version, generation: 0, attempts: 0, due, serves };
            world.queue.push(message);
            if fault == Some(Fault::ConfirmLost) {
                *world.publishers.get_mut(n)? = publisher;
                return Some(());
            }
            world.account.confirmed |= serves;
        }
        Effect::Record if fault == Some(Fault::CallLate) => {
            world.late.push(Late::Record { event: number, place, version, due });
        }
        Effect::Record => world.record(scenario, number, place, version, due),
        _ => return None,
    }
    publisher.todo = rest;
    *world.publishers.get_mut(n)? = publisher;
    Some(())
}

/// Returns the time in so many ticks. If time stands still in the scenario, it returns the present time, because a date
/// is only a name there.
pub(crate) fn later(world: &World, scenario: &Scenario, by: Tick) -> Tick {
    if scenario.time.is_some() { world.now + by } else { world.now }
}

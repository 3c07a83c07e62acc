//! The steps that nobody takes: late calls, a Redis that loses data, and time.

use crate::{
    leases, person, properties,
    scenario::{Fault, Scenario},
    step::Step,
    world::{Late, NOBODY, Phase, Register, World},
};

/// Adds the steps that can happen next.
pub(crate) fn steps(world: &World, scenario: &Scenario, steps: &mut Vec<Step>) {
    let may = |fault| world.faults > 0 && scenario.allows(fault);
    leases::steps(world, scenario, steps);
    steps.extend((0..world.late.len()).map(Step::Arrives));
    if may(Fault::RedisEmptied) && !(world.register.slots.is_empty() && world.register.leases.is_empty()) {
        steps.push(Step::RedisEmptied);
    }
    match &world.replica {
        None if may(Fault::RedisRolledBack) => steps.push(Step::ReplicaStops),
        Some(replica) if *replica != world.register => steps.push(Step::RedisRolledBack),
        _ => {}
    }
    if scenario.time.is_some() && world.quiet(scenario) {
        steps.push(Step::Tick);
    }
}

impl World {
    /// Tells whether time may pass: nobody is between two effects, which take no time, and no due message waits without
    /// a cause.
    fn quiet(&self, scenario: &Scenario) -> bool {
        let patience = scenario.time.map_or(0, |time| time.patience);
        let waits = self.queue.iter().map(|message| message.due).min();
        let runs = self.workers.iter().flatten().any(|task| task.phase == Phase::Running);
        // If no message waits for it, time would pass without end.
        waits.is_some() && self.publishers.iter().all(|publisher| publisher.todo.is_empty())
            && self.person.is_none()
            && self.late.is_empty()
            && self.workers.iter().flatten().all(|task| task.phase == Phase::Running)
            && waits.is_none_or(|due| due + patience > self.now)
            // While a handler runs, time passes only until the next message is due.
            && (!runs || waits.is_none_or(|due| due >= self.now))
    }
}

/// Lets a late call arrive.
pub(crate) fn arrives(world: &mut World, scenario: &Scenario, index: usize) -> Option<()> {
    match world.late.remove(index) {
        Late::Record { event, place, version, due } => world.record(scenario, event, place, version, due),
        // Nobody gets the answer.
        Late::Claim(message) => drop(world.claim(scenario, &message, NOBODY, false)),
        Late::Settle { message, fence, end } => {
            world.settle(scenario, &message, fence, NOBODY, end);
            properties::settled(world, &message, fence, end);
        }
        Late::Cancel { action, asked } => {
            person::cancel(world, scenario, *scenario.actions.get(usize::from(action))?)?;
            properties::cancelled_unheard(world, asked);
        }
    }
    Some(())
}

/// Redis loses all data, or the changes since its replica stopped following.
pub(crate) fn forgets(world: &mut World, rolled_back: bool) -> Option<()> {
    let replica = world.replica.take();
    world.register = if rolled_back { replica? } else { Register::default() };
    world.account.loses_redis();
    Some(())
}

/// Time passes by a tick, and the leases of running handlers are renewed.
pub(crate) fn tick(world: &mut World, scenario: &Scenario) -> Option<()> {
    world.now += 1;
    let now = crate::register::millis(world.now);
    world.register.slots.retain(|(_, slot)| slot.until > now);
    let running: Vec<_> = world.workers.iter().flatten().filter(|task| !task.lost).map(|task| task.doing).collect();
    for doing in &running {
        world.renew(scenario, doing);
    }
    Some(())
}

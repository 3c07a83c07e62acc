//! Orders of steps that need not be tried, for another one leads to the same.
//!
//! - An acknowledgement only takes away what nobody else sees. Before it the delivery may come back, at once or later, which
//!   is the same to everybody else: it may lie in its queue for as long as one likes.
//! - Where Redis will not forget and nobody interferes, whoever holds a lease and its delivery has its way for itself, to the end
//!   or up to a fault of its own: all other claims of the reference are told to wait, and what publishers do meanwhile
//!   changes nothing for it, nor it for them, so that they may as well do it before or after.
//! - What the register does not want now it will not want later, unless Redis may yet forget, or time makes it overdue. So it
//!   is taken out of the queue at once.

use hatchery::internals::register::{Claim, Claimed};

use crate::{
    message::Message,
    order::Effect,
    register::{subject, time, uuid},
    scenario::Scenario,
    world::{NOBODY, Phase, World},
};

/// The delivery that alone goes on.
pub(crate) fn task(world: &World, scenario: &Scenario) -> Option<(usize, usize)> {
    let find = |is: &dyn Fn(&crate::world::Task) -> bool| {
        let of = |tasks: &Vec<crate::world::Task>| tasks.iter().position(is);
        world.workers.iter().enumerate().find_map(|(worker, tasks)| Some((worker, of(tasks)?)))
    };
    let acknowledges =
        |task: &crate::world::Task| task.phase == Phase::Ended && task.doing.todo == [Effect::Acknowledge];
    if let Some(found) = find(&acknowledges) {
        return Some(found);
    }
    let nobody = world.actions == 0 && world.person.is_none() && world.late.is_empty() && world.replica.is_none();
    let holds = |task: &crate::world::Task| {
        let held = |lease: &crate::world::Lease| lease.token == task.doing.token;
        task.delivery && !task.lost && task.phase != Phase::Unheard && world.register.leases.iter().any(held)
    };
    let all = world.workers.iter().flatten().all(holds);
    if nobody && all && !world.may_forget(scenario) { find(&holds) } else { None }
}

impl World {
    /// Takes what is not wanted out of the queue.
    pub(crate) fn drop_unwanted(&mut self, scenario: &Scenario) {
        if scenario.time.is_some() || self.may_forget(scenario) {
            return;
        }
        let mut queue = std::mem::take(&mut self.queue);
        queue.retain(|message| !self.unwanted(scenario, message));
        self.queue = queue;
    }

    /// Redis may still lose what it knows.
    fn may_forget(&self, scenario: &Scenario) -> bool {
        self.replica.is_some() || (scenario.forgets() && self.faults > 0)
    }

    /// All faults are spent, and Redis was to forget something and has not: the same was explored without that.
    pub(crate) fn is_explored_elsewhere(&self, scenario: &Scenario) -> bool {
        scenario.forgets() && self.faults == 0 && self.replica.is_none() && !self.account.redis_lost
    }

    fn unwanted(&self, scenario: &Scenario, message: &Message) -> bool {
        let Some((_, slot)) = self.register.slots.iter().find(|(place, _)| *place == message.place) else {
            return false;
        };
        let version = message.version;
        if slot.mark.version < version && slot.newest <= version && slot.covered < version {
            return false;
        }
        let call = Claim {
            subject: subject(message.event),
            stamp: message.stamp(),
            token: uuid(NOBODY),
            due: time(message.due),
            alone: false,
            terms: scenario.terms(),
        };
        let mut copy = self.clone_for_a_question();
        let answer = copy.ask(scenario, |shard, at| scenario.protocol.rules.claim(shard, at, &call));
        matches!(answer, Claimed::Stale | Claimed::Replaced)
    }

    /// A world with nothing but its register.
    fn clone_for_a_question(&self) -> Self {
        Self { now: self.now, given: self.given, register: self.register.clone(), ..Self::default() }
    }
}

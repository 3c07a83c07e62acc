//! Leaves out orders of steps that lead to the same states as another order.
//!
//! - An acknowledgement removes a delivery that nobody else sees. If the delivery comes back instead, it does not
//!   matter when: it may wait in its queue for any time. So an acknowledgement is the next step as soon as it is
//!   possible.
//! - If Redis loses no data and no person acts, a worker that holds a lease and its delivery goes on alone, to the end
//!   or to a fault of its own. All other claims of the reference have to wait. The steps of publishers change nothing
//!   for this worker, and its steps change nothing for them, so theirs may come before or after.
//! - A copy that the register does not want now is not wanted later either, unless Redis may still lose data, or time
//!   makes the copy overdue. So it is removed from the queue at once.

use hatchery::internals::register::{Claim, ClaimAnswer};

use crate::{
    message::Message,
    order::Effect,
    register::{subject, time, uuid},
    scenario::Scenario,
    world::{NOBODY, Phase, World},
};

/// Returns the delivery that goes on alone, if there is one.
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
    /// Removes unwanted copies from the queue.
    pub(crate) fn drop_unwanted(&mut self, scenario: &Scenario) {
        if scenario.time.is_some() || self.may_forget(scenario) {
            return;
        }
        let mut queue = std::mem::take(&mut self.queue);
        queue.retain(|message| !self.unwanted(scenario, message));
        self.queue = queue;
    }

    /// Tells whether Redis may still lose data.
    fn may_forget(&self, scenario: &Scenario) -> bool {
        self.replica.is_some() || (scenario.forgets() && self.faults > 0)
    }

    /// Tells whether all faults are spent although Redis has lost no data. The scenario in which Redis keeps its data
    /// explores the same states.
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
        matches!(answer, ClaimAnswer::Stale | ClaimAnswer::Replaced)
    }

    /// Returns a world with this one's register and nothing else, to ask a claim without consequences.
    fn clone_for_a_question(&self) -> Self {
        Self { now: self.now, given: self.given, register: self.register.clone(), ..Self::default() }
    }
}

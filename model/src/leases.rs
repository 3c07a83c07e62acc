//! Leases that run out.

use crate::{
    scenario::{Fault, Scenario},
    step::Step,
    world::World,
};

/// The leases that can run out next.
pub(crate) fn steps(world: &World, scenario: &Scenario, steps: &mut Vec<Step>) {
    for (lease, one) in world.register.leases.iter().enumerate() {
        // One whose holder has died runs out by itself.
        let fault = world.is_alive(one.token).then_some(Fault::LeaseRunsOut);
        if fault.is_none_or(|fault| world.faults > 0 && scenario.allows(fault)) {
            steps.push(Step::LeaseRunsOut { lease, fault });
        }
    }
}

/// A lease runs out.
pub(crate) fn runs_out(world: &mut World, lease: usize) -> Option<()> {
    let lease = world.register.leases.remove(lease);
    for task in world.workers.iter_mut().flatten().filter(|task| task.doing.token == lease.token) {
        task.lost = true;
    }
    Some(())
}

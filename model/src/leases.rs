//! The steps in which a lease runs out.

use crate::{
    scenario::{Fault, Scenario},
    step::Step,
    world::World,
};

/// Adds the leases that can run out next.
pub(crate) fn steps(world: &World, scenario: &Scenario, steps: &mut Vec<Step>) {
    for (lease, one) in world.register.leases.iter().enumerate() {
        // If its holder has died, a lease runs out without a further fault.
        let fault = world.is_alive(one.token).then_some(Fault::LeaseRunsOut);
        if fault.is_none_or(|fault| world.faults > 0 && scenario.allows(fault)) {
            steps.push(Step::LeaseRunsOut { lease, fault });
        }
    }
}

/// Lets a lease run out.
pub(crate) fn runs_out(world: &mut World, lease: usize) -> Option<()> {
    let lease = world.register.leases.remove(lease);
    for task in world.workers.iter_mut().flatten().filter(|task| task.doing.token == lease.token) {
        task.lost = true;
    }
    Some(())
}

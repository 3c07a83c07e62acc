//! The properties hold for our protocol, and each mutant breaks one.

use super::{
    explore,
    scenario::{Fault, Protocol, SCENARIOS, Scenario},
};

/// Two definitions with a fault have millions of states. `scripts/soak model` explores them.
#[test]
fn schedules_keep_one_chain_whatever_fails() {
    for scenario in SCENARIOS {
        let faults = if scenario.files[0] == scenario.files[1] { 1 } else { 0 };
        let found = explore(&Scenario { faults, ..*scenario }, usize::MAX);
        if let Some((broken, trace)) = found.broken {
            panic!("{}: {broken}\n  {}", scenario.name, trace.join("\n  "));
        }
    }
}

/// Tells whether the mutant breaks a property in one of these scenarios.
fn is_caught(protocol: Protocol, kinds: &'static [Fault]) -> bool {
    let mutants = SCENARIOS.iter().map(|scenario| Scenario { protocol, kinds, ..*scenario });
    mutants.into_iter().any(|mutant| explore(&mutant, 2_000_000).broken.is_some())
}

#[test]
fn each_mutant_of_the_schedules_is_caught() {
    use Fault::{Crash, Duplicate, Flush, Purge};
    assert!(is_caught(Protocol::ArmsAlways, &[Flush]), "arms always");
    assert!(is_caught(Protocol::ArmsUnclaimed, &[Crash, Duplicate]), "arms unclaimed");
    assert!(is_caught(Protocol::RunsSuperseded, &[Crash]), "runs superseded");
    assert!(is_caught(Protocol::FinishesArmed, &[Crash]), "finishes armed");
    assert!(is_caught(Protocol::HealsNever, &[Purge]), "heals never");
    assert!(is_caught(Protocol::ArmedUnpublished, &[Crash]), "armed unpublished");
    assert!(is_caught(Protocol::NumbersAnew, &[Flush]), "numbers anew");
}

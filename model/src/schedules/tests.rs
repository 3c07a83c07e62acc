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

/// A roll-out that meets a running event leaves nothing to heal.
#[test]
fn a_roll_out_without_faults_needs_no_healing() {
    let rolled_out = |protocol| {
        let scenarios = SCENARIOS.iter().filter(|scenario| scenario.files == [0, 1]);
        let found = scenarios.map(|scenario| explore(&Scenario { faults: 0, protocol, ..*scenario }, usize::MAX));
        found.filter_map(|found| found.broken).next()
    };
    if let Some((broken, trace)) = rolled_out(Protocol::HealsNever) {
        panic!("{broken}\n  {}", trace.join("\n  "));
    }
    assert!(rolled_out(Protocol::PassesNever).is_some(), "passes never");
}

/// Tells whether the mutant breaks a property in one of these scenarios.
fn is_caught(protocol: Protocol, kinds: &'static [Fault]) -> bool {
    let mutants = SCENARIOS.iter().map(|scenario| Scenario { protocol, kinds, ..*scenario });
    mutants.into_iter().any(|mutant| explore(&mutant, 2_000_000).broken.is_some())
}

#[test]
fn each_mutant_of_the_schedules_is_caught() {
    use Fault::{Crash, Duplicate, Flush, Purge};
    let mutants: [(&str, Protocol, &'static [Fault]); 7] = [
        ("arms always", Protocol::ArmsAlways, &[Flush]),
        ("arms unclaimed", Protocol::ArmsUnclaimed, &[Crash, Duplicate]),
        ("runs superseded", Protocol::RunsSuperseded, &[Crash]),
        ("finishes armed", Protocol::FinishesArmed, &[Crash]),
        ("heals never", Protocol::HealsNever, &[Purge]),
        ("armed unpublished", Protocol::ArmedUnpublished, &[Crash]),
        ("numbers anew", Protocol::NumbersAnew, &[Flush]),
    ];
    let missed = mutants.into_iter().filter(|(_, protocol, kinds)| !is_caught(*protocol, kinds));
    assert_eq!(missed.map(|(name, ..)| name).collect::<Vec<_>>(), [""; 0]);
}

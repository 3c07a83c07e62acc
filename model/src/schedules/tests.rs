//! The properties hold for our protocol, and each mutant breaks one.

use super::{
    explore,
    scenario::{Fault, Protocol, SCENARIOS, Scenario},
};

/// Two definitions with a fault have millions of states. `scripts/soak model` explores them.
#[test]
#[ignore = "explores for half a minute; scripts/test --all runs it"]
fn schedules_keep_one_chain_whatever_fails() {
    for scenario in SCENARIOS {
        let faults = u8::from(scenario.files[0] == scenario.files[1]);
        let found = explore(&Scenario { faults, ticks: 6, ..*scenario }, usize::MAX);
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
        let mut found = scenarios.map(|scenario| explore(&Scenario { faults: 0, protocol, ..*scenario }, usize::MAX));
        found.find_map(|found| found.broken)
    };
    if let Some((broken, trace)) = rolled_out(Protocol::HealsNever) {
        panic!("{broken}\n  {}", trace.join("\n  "));
    }
    assert!(rolled_out(Protocol::PassesNever).is_some(), "passes never");
}

/// Tells whether the mutant breaks a property in this scenario, in which our protocol holds.
fn is_caught(name: &str, protocol: Protocol, kinds: &'static [Fault]) -> bool {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).expect("a scenario");
    let found = explore(&Scenario { kinds, protocol, ..*scenario }, usize::MAX);
    found.broken.is_some()
}

#[test]
#[ignore = "explores for half a minute; scripts/test --all runs it"]
fn each_mutant_of_the_schedules_is_caught() {
    use Fault::{Crash, Flush, Purge};
    let mutants: [(&str, Protocol, &str, &'static [Fault]); 4] = [
        ("arms always", Protocol::ArmsAlways, "sequential, forgets", &[Flush]),
        ("finishes armed", Protocol::FinishesArmed, "fixed, two definitions", &[Crash]),
        ("heals never", Protocol::HealsNever, "fixed, forgets", &[Purge]),
        ("armed unpublished", Protocol::ArmedUnpublished, "fixed, two definitions", &[Crash]),
    ];
    let missed = mutants.into_iter().filter(|(_, protocol, name, kinds)| !is_caught(name, *protocol, kinds));
    assert_eq!(missed.map(|(name, ..)| name).collect::<Vec<_>>(), [""; 0]);
}

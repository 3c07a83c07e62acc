//! The scenarios, with few enough faults for a test run.

use crate::{
    explorer::explore,
    scenario::{PEOPLE, SCENARIOS, Scenario, TIMES},
};

#[expect(clippy::print_stdout, reason = "the figures are read with --nocapture")]
fn hold(scenarios: &[Scenario], faults: u8) {
    for scenario in scenarios {
        let found = explore(&Scenario { faults, ..*scenario }, usize::MAX);
        println!("{}: {} states, {} steps, {} deep", scenario.name, found.states, found.steps, found.depth);
        if let Some(broken) = found.broken {
            panic!("{}: {}\n  {}", scenario.name, broken.property, broken.trace.join("\n  "));
        }
    }
}

#[test]
fn every_mode_with_one_fault() {
    hold(SCENARIOS, 1);
}

#[test]
fn people_with_one_fault() {
    hold(PEOPLE, 1);
}

#[test]
fn time_with_one_fault() {
    hold(TIMES, 1);
}

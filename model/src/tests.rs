//! The scenarios with few enough events and faults for a test run.

use crate::{
    explorer::explore,
    scenario::{Fault, PEOPLE, SCENARIOS, Scenario, TIMES},
};

#[expect(clippy::print_stdout, reason = "the figures are read with --nocapture")]
fn hold(scenarios: impl IntoIterator<Item = Scenario>, faults: u8) {
    for scenario in scenarios {
        let found = explore(&Scenario { faults, ..scenario }, usize::MAX);
        println!("{}: {} states, {} steps, {} deep", scenario.name, found.states, found.steps, found.depth);
        if let Some(broken) = found.broken {
            panic!("{}: {}\n  {}", scenario.name, broken.property, broken.trace.join("\n  "));
        }
    }
}

#[test]
fn three_events_in_every_mode() {
    hold(SCENARIOS.iter().copied(), 0);
}

#[test]
fn two_events_in_every_mode_and_a_fault() {
    hold(SCENARIOS.iter().map(|scenario| scenario.of_two()), 1);
}

/// Not in every mode: `scripts/soak model`.
#[test]
fn three_events_and_a_fault() {
    hold(SCENARIOS.iter().filter(|scenario| ["latest", "first", "mixed"].contains(&scenario.name)).copied(), 1);
}

/// A run that is cut off while its handler goes on, the run after it, and calls that come late.
#[test]
fn slot_f_and_workers_that_are_cut_off() {
    let first = SCENARIOS.iter().filter(|scenario| scenario.name == "first");
    let kinds = &[Fault::Disconnect, Fault::LeaseRunsOut, Fault::WorkerCrashes, Fault::CallLate];
    hold(first.map(|scenario| Scenario { kinds, answers: &[], ..scenario.of_two() }), 3);
}

#[test]
fn redis_forgets() {
    hold(SCENARIOS.iter().map(|scenario| scenario.of_two().forgetting()), 1);
}

#[test]
fn people() {
    hold(PEOPLE.iter().copied(), 0);
}

/// A cancel that is tried again, and a claim that is asked again after a cancel.
#[test]
fn people_and_an_answer_that_is_lost() {
    let cancelled = PEOPLE.iter().filter(|scenario| scenario.name.contains("cancelled"));
    hold(cancelled.map(|scenario| Scenario { kinds: &[Fault::AnswerLost], answers: &[], ..*scenario }), 1);
}

#[test]
fn time_passes() {
    hold(TIMES.iter().copied(), 0);
}

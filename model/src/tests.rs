//! Explores the scenarios with few enough events and faults for a test run.

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
fn the_properties_hold_for_three_events_in_every_mode() {
    hold(SCENARIOS.iter().copied(), 0);
}

#[test]
fn the_properties_hold_for_two_events_in_every_mode_with_a_fault() {
    hold(SCENARIOS.iter().map(|scenario| scenario.of_two()), 1);
}

/// Explores three modes. `scripts/soak model` explores all of them.
#[test]
#[ignore = "explores millions of states; scripts/test --all runs it"]
fn the_properties_hold_for_three_events_with_a_fault() {
    hold(SCENARIOS.iter().filter(|scenario| ["latest", "first", "mixed"].contains(&scenario.name)).copied(), 1);
}

/// The worker of a run loses its connection while its handler goes on, another run follows, and calls come late.
#[test]
fn the_properties_hold_in_slot_f_when_workers_lose_their_connection() {
    let first = SCENARIOS.iter().filter(|scenario| scenario.name == "first");
    let kinds = &[Fault::Disconnect, Fault::LeaseRunsOut, Fault::WorkerCrashes, Fault::CallLate];
    hold(first.map(|scenario| Scenario { kinds, answers: &[], ..scenario.of_two() }), 3);
}

#[test]
fn no_event_is_lost_when_redis_loses_data() {
    hold(SCENARIOS.iter().map(|scenario| scenario.of_two().forgetting()), 1);
}

#[test]
fn no_event_is_lost_when_redis_is_emptied_while_people_act() {
    let first = PEOPLE.iter().filter(|scenario| scenario.name.starts_with("first"));
    hold(first.map(|scenario| Scenario { kinds: &[Fault::RedisEmptied], answers: &[], ..scenario.of_two() }), 1);
}

#[test]
fn the_properties_hold_when_people_act() {
    hold(PEOPLE.iter().copied(), 0);
}

/// A cancel is repeated, and a claim is repeated after a cancel.
#[test]
fn the_properties_hold_when_people_act_and_an_answer_is_lost() {
    let cancelled = PEOPLE.iter().filter(|scenario| scenario.name.contains("cancelled"));
    hold(cancelled.map(|scenario| Scenario { kinds: &[Fault::AnswerLost], answers: &[], ..*scenario }), 1);
}

#[test]
fn the_properties_hold_while_time_passes() {
    hold(TIMES.iter().copied(), 0);
}

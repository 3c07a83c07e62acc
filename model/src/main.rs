//! `scripts/soak model` explores all states of the protocol between publishers, broker, workers and register.
//!
//! It checks `docs/register.md`: the register's calls are the library's own transitions, and the order of effects is
//! that of `src/publish` and `src/work`.
//!
//! - [`scenario`] defines what is explored, [`world`] a state, [`message`] a copy of an event, and [`order`] and
//!   [`step`] what can happen next.
//! - [`publisher`], [`worker`], [`person`], [`leases`] and [`trouble`] define the steps of each.
//! - [`register`] makes the calls, by its [`rules`]. [`properties`] checks what must hold, against the [`account`].
//! - [`explorer`] visits all states, [`canonical`] and [`alone`] reduce their number, and [`trace`] describes a path.
//! - `mutants` are protocols with one error each, which the model must find.

#![expect(clippy::unnecessary_wraps, reason = "the steps have one form, and so have the slots of the modes")]

mod account;
mod alone;
mod canonical;
mod explorer;
mod leases;
mod message;
#[cfg(test)]
mod mutants;
mod order;
mod person;
mod properties;
mod publisher;
mod register;
mod rules;
mod scenario;
mod schedules;
mod step;
#[cfg(test)]
mod tests;
mod trace;
mod trouble;
mod worker;
mod world;

use std::{
    io::Write as _,
    process::ExitCode,
    sync::Mutex,
    time::{Duration, Instant},
};

use clap::Parser;

use self::scenario::{PEOPLE, SCENARIOS, Scenario, TIMES};

/// Explores the protocol of docs/register.md: every order of steps, with any faults between any two of them
#[derive(Parser)]
#[command(name = "scripts/soak model")]
struct Args {
    /// The most faults on one path
    #[arg(long, default_value_t = 1)]
    faults: u8,
    /// Explore only scenarios whose names contain this text
    #[arg(long, default_value = "")]
    scenario: String,
    /// Publish two events instead of three
    #[arg(long)]
    two: bool,
    /// Explore only scenarios in which Redis loses no data
    #[arg(long)]
    keeps: bool,
    /// Give a scenario up after this many states
    #[arg(long, default_value_t = 40_000_000)]
    states: usize,
    /// The number of scenarios to explore at a time
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let forgetting = SCENARIOS.iter().chain(PEOPLE).map(|scenario| scenario.forgetting());
    let mut all: Vec<Scenario> = [SCENARIOS, PEOPLE, TIMES].concat().into_iter().chain(forgetting).collect();
    all.retain(|scenario| scenario.name.contains(&args.scenario) && !(args.keeps && scenario.forgets()));
    let begun = Instant::now();
    say(&row(["scenario", "Redis", "faults", "states", "steps", "depth", "time"]));
    let left = Mutex::new(all.into_iter());
    let holds = Mutex::new(true);
    std::thread::scope(|scope| {
        for _ in 0..args.threads.max(1) {
            scope.spawn(|| {
                while let Some(next) = left.lock().ok().and_then(|mut left| left.next()) {
                    let scenario = if args.two { next.of_two() } else { next };
                    let whole = told(&Scenario { faults: args.faults, ..scenario }, args.states);
                    if let Ok(mut holds) = holds.lock() {
                        *holds &= whole;
                    }
                }
            });
        }
    });
    let mut holds = holds.into_inner().unwrap_or(false);
    for scenario in schedules::scenario::SCENARIOS {
        let name = format!("schedule: {}", scenario.name);
        if name.contains(&args.scenario) {
            let faults = scenario.faults.max(args.faults);
            holds &= told_of_schedule(&name, &schedules::scenario::Scenario { faults, ..*scenario }, args.states);
        }
    }
    let seconds = begun.elapsed().as_secs();
    say(&format!(
        "{}, after {seconds} s.",
        if holds { "All properties hold" } else { "A property is broken, or not all states were seen" }
    ));
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explores one scenario and prints its row. Returns whether all states were seen and all properties hold.
fn told(scenario: &Scenario, at_most: usize) -> bool {
    let begun = Instant::now();
    let found = explorer::explore(scenario, at_most);
    let time = Duration::from_secs(begun.elapsed().as_secs());
    let whole = if found.whole { "" } else { "  NOT ALL" };
    let redis = if scenario.forgets() { "forgets" } else { "keeps" };
    let [faults, states] = [scenario.faults.into(), found.states].map(|number: usize| number.to_string());
    let [steps, depth] = [found.steps, found.depth].map(|number| number.to_string());
    let mut text = row([scenario.name, redis, &faults, &states, &steps, &depth, &format!("{time:?}")]) + whole;
    if let Some(broken) = &found.broken {
        let trace = broken.trace.join("\n  ");
        text = format!("{text}\n{}: {}\n  {trace}", scenario.name, broken.property);
    }
    say(&text);
    found.whole && found.broken.is_none()
}

/// Explores one scenario of schedules and prints its row. Returns whether all states were seen and all properties hold.
fn told_of_schedule(name: &str, scenario: &schedules::scenario::Scenario, at_most: usize) -> bool {
    let begun = Instant::now();
    let found = schedules::explore(scenario, at_most);
    let time = Duration::from_secs(begun.elapsed().as_secs());
    let whole = if found.whole { "" } else { "  NOT ALL" };
    let [faults, states] = [scenario.faults.into(), found.states].map(|number: usize| number.to_string());
    let mut text = row([name, "-", &faults, &states, "-", "-", &format!("{time:?}")]) + whole;
    if let Some((broken, trace)) = &found.broken {
        text = format!("{text}\n{name}: {broken}\n  {}", trace.join("\n  "));
    }
    say(&text);
    found.whole && found.broken.is_none()
}

fn row([name, redis, faults, states, steps, depth, time]: [&str; 7]) -> String {
    format!("{name:<36} {redis:<8} {faults:>6} {states:>10} {steps:>11} {depth:>5} {time:>6}")
}

fn say(line: &str) {
    // If standard output is closed, nobody reads the line.
    let _ = writeln!(anstream::stdout(), "{line}");
}

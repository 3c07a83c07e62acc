//! `scripts/soak model`: the protocol between publishers, broker, workers and register, explored exhaustively. It is
//! `docs/register.md` in motion: the register's calls are the library's own transitions, and the order of effects is
//! `src/flow`'s.
//!
//! - [`scenario`]: what is explored; [`world`]: a state; [`message`]: a copy of an event in it; [`order`] and [`step`]: what can happen to it.
//! - [`publisher`], [`worker`], [`person`], [`leases`], [`trouble`]: the steps of each.
//! - [`register`]: the calls, by its [`rules`]. [`properties`]: what must hold; [`account`]: what it is checked against.
//! - [`explorer`], [`canonical`], [`alone`], [`trace`]: how it is explored and told.
//! - `mutants`: protocols that are wrong in one place, each of which has to be found out.

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
    /// So many faults on one way, at most
    #[arg(long, default_value_t = 1)]
    faults: u8,
    /// Only scenarios whose names contain this
    #[arg(long, default_value = "")]
    scenario: String,
    /// Two events instead of three
    #[arg(long)]
    two: bool,
    /// Only those in which Redis keeps what it knows
    #[arg(long)]
    keeps: bool,
    /// Give a scenario up after so many states
    #[arg(long, default_value_t = 40_000_000)]
    states: usize,
    /// So many scenarios at a time
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
    let holds = holds.into_inner().unwrap_or(false);
    let seconds = begun.elapsed().as_secs();
    say(&format!(
        "{}, after {seconds} s.",
        if holds { "All properties hold" } else { "A property is broken, or not all was seen" }
    ));
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explores one and tells of it.
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

fn row([name, redis, faults, states, steps, depth, time]: [&str; 7]) -> String {
    format!("{name:<36} {redis:<8} {faults:>6} {states:>10} {steps:>11} {depth:>5} {time:>6}")
}

fn say(line: &str) {
    // Nobody reads what cannot be written.
    let _ = writeln!(anstream::stdout(), "{line}");
}

//! `scripts/soak` runs hatchery under load, under `kill -9`, under faults of a cluster and beside bare lapin. It
//! accounts for every event without asking hatchery. `scripts/soak --help` says more.

mod bursts;
mod cancel;
mod cluster;
mod dead_letter;
mod harness;
mod kills;
mod ladder;
mod life_cycle;
mod memory;
mod register;
mod schedules;
mod sources;
mod switches;
mod upgrade;
mod wedge;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hatchery_soak::console::{Console, GREEN, RED};

use crate::harness::child;

#[derive(Parser)]
#[command(name = "scripts/soak")]
struct Args {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Events with random dates through the ladder, compared with a ladder built with bare lapin
    Ladder(ladder::Args),
    /// What the stream of the life of events tells of events that fail, wait, are cancelled and replayed, while workers are
    /// killed: the same story as the notes of the handlers
    LifeCycle(life_cycle::Args),
    /// Workers that are killed and started again all the time: no event is lost, and each second run is explained
    Kills(kills::Args),
    /// A type whose processing queue was deleted: other types are not held up, and its events are delivered in the end
    Wedge(wedge::Args),
    /// The memory of a worker with a long backlog, and of a publisher that the broker blocks
    Memory(memory::Args),
    /// The cost of the register: Redis memory for each event, and the time of each call
    Register(register::Args),
    /// Delayed events that are cancelled or rescheduled: the rate, and whether any runs at its old time
    Cancel(cancel::Args),
    /// Many changes of the same references, while Redis is killed and flushed: about one call a window, and none is
    /// lost
    Bursts(bursts::Args),
    /// Schedules every second under `kill -9` and roll-outs, and with purged queues and a flushed Redis: each instant runs once
    Schedules(schedules::Args),
    /// A cluster of three nodes under faults: no event is lost, and how long publishers and workers stall
    Cluster(cluster::Args),
    /// Dead letters: the rate of a replay beside a bare shovel, a kill in the middle, and three processes that look
    DeadLetter(dead_letter::Args),
    /// Two sources, with workers that are killed all the time and a broker that is restarted: every message becomes its
    /// event once, or lies in the dead letters
    Sources(sources::Args),
    /// A circuit breaker that opens and closes again and again, and pauses under load: how soon nothing starts, and that no
    /// event is lost
    Switches(switches::Args),
    /// The last release and this tree on one topology, replaced process by process and back: every event is handled once
    Upgrade(upgrade::Args),
    /// A child process of another mode
    #[command(hide = true)]
    Child(child::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    // Fails if a provider is installed already; that one serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut console = Console::new();
    let ended = match Args::parse().mode {
        Mode::Ladder(args) => ladder::run(&args, &mut console).await,
        Mode::LifeCycle(args) => Box::pin(life_cycle::run(&args, &mut console)).await,
        Mode::Kills(args) => kills::run(&args, &mut console).await,
        Mode::Wedge(args) => wedge::run(&args, &mut console).await,
        Mode::Memory(args) => memory::run(&args, &mut console).await,
        Mode::Register(args) => register::run(&args, &mut console).await,
        Mode::Cancel(args) => cancel::run(&args, &mut console).await,
        Mode::Bursts(args) => bursts::run(&args, &mut console).await,
        Mode::Schedules(args) => schedules::run(&args, &mut console).await,
        Mode::Cluster(args) => cluster::run(&args, &mut console).await,
        Mode::DeadLetter(args) => dead_letter::run(&args, &mut console).await,
        Mode::Sources(args) => sources::run(&args, &mut console).await,
        Mode::Switches(args) => switches::run(&args, &mut console).await,
        Mode::Upgrade(args) => upgrade::run(&args, &mut console).await,
        Mode::Child(args) => return child::main(args).await,
    };
    console.end_progress();
    let seconds = console.elapsed().as_secs();
    match ended {
        Ok(true) => {
            console.say(&format!("{GREEN}All numbers are within their limits{GREEN:#}, after {seconds} s."));
            ExitCode::SUCCESS
        }
        Ok(false) => {
            console.say(&format!("{RED}A number is outside its limit{RED:#}, after {seconds} s."));
            ExitCode::FAILURE
        }
        Err(error) => {
            console.say(&format!("{RED}soak:{RED:#} {error:#}"));
            ExitCode::FAILURE
        }
    }
}

//! `scripts/soak`: hatchery under load, under `kill -9` and beside bare lapin, with an account of every event taken from
//! the outside. `scripts/soak --help` says more.

mod account;
mod bursts;
mod cancel;
mod chance;
mod child;
mod cluster;
mod common;
#[path = "../../demo/src/console.rs"]
mod console;
mod kills;
mod ladder;
mod lateness;
mod memory;
mod notes;
mod plan;
mod queues;
mod register;
mod runs;
mod servers;
mod stage;
mod table;
mod traffic;
mod wedge;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::console::{Console, GREEN, RED};

#[derive(Parser)]
#[command(name = "scripts/soak")]
struct Args {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Random dates through the ladder, beside a ladder that is made with lapin alone
    Ladder(ladder::Args),
    /// Workers that are killed and started again all the time: nothing is lost, and what ran twice is explained
    Kills(kills::Args),
    /// A type whose processing queue was deleted holds nobody up, and its events are delivered in the end
    Wedge(wedge::Args),
    /// The memory of a worker with a long backlog, and of a publisher that the broker has blocked
    Memory(memory::Args),
    /// What the register costs: memory for each event in Redis, and the time of each call
    Register(register::Args),
    /// Delayed events that are cancelled or get another time: how fast, and whether any runs at its old time
    Cancel(cancel::Args),
    /// Many changes of the same references, while Redis is killed and flushed: near one call a window, and none is lost
    Bursts(bursts::Args),
    /// A cluster of three nodes under faults: nothing is lost, and how long publishers and workers stand still
    Cluster(cluster::Args),
    /// A process of another mode
    #[command(hide = true)]
    Child(child::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    // Fails when there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut console = Console::new();
    let ended = match Args::parse().mode {
        Mode::Ladder(args) => ladder::run(&args, &mut console).await,
        Mode::Kills(args) => kills::run(&args, &mut console).await,
        Mode::Wedge(args) => wedge::run(&args, &mut console).await,
        Mode::Memory(args) => memory::run(&args, &mut console).await,
        Mode::Register(args) => register::run(&args, &mut console).await,
        Mode::Cancel(args) => cancel::run(&args, &mut console).await,
        Mode::Bursts(args) => bursts::run(&args, &mut console).await,
        Mode::Cluster(args) => cluster::run(&args, &mut console).await,
        Mode::Child(args) => return child::main(&args).await,
    };
    console.end_progress();
    let seconds = console.elapsed().as_secs();
    match ended {
        Ok(true) => {
            console.say(&format!("{GREEN}All numbers hold{GREEN:#}, after {seconds} s."));
            ExitCode::SUCCESS
        }
        Ok(false) => {
            console.say(&format!("{RED}A number is off{RED:#}, after {seconds} s."));
            ExitCode::FAILURE
        }
        Err(error) => {
            console.say(&format!("{RED}soak:{RED:#} {error:#}"));
            ExitCode::FAILURE
        }
    }
}

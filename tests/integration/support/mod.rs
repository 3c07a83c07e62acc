//! Helpers of the integration tests: servers, clients, workers, processes.

pub(crate) mod amqp;
pub(crate) mod amqp10;
mod answers;
pub(crate) mod broker;
pub(crate) mod certificates;
pub(crate) mod cli;
pub(crate) mod clock;
mod containers;
pub(crate) mod declared;
pub(crate) mod deployments;
pub(crate) mod held;
pub(crate) mod logs;
pub(crate) mod page;
pub(crate) mod private;
pub(crate) mod process;
pub(crate) mod records;
pub(crate) mod redis;
pub(crate) mod relay;
mod server;
#[path = "../../support/simulator/mod.rs"]
#[allow(dead_code, reason = "the unit tests use the rest of the module")]
pub(crate) mod simulator;
pub(crate) mod wire;
pub(crate) mod workers;

pub(crate) use self::answers::closed;

use std::io::Write as _;

/// Prints a line to standard error. Unlike `eprintln!`, it does so even if the test passes.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

//! What the tests stand on.

pub(crate) mod amqp;
pub(crate) mod broker;
mod calls;
pub(crate) mod certificates;
pub(crate) mod cli;
pub(crate) mod clock;
mod containers;
pub(crate) mod declared;
pub(crate) mod deployments;
pub(crate) mod held;
pub(crate) mod logs;
pub(crate) mod private;
pub(crate) mod process;
pub(crate) mod redis;
pub(crate) mod relay;
mod server;
#[path = "../../support/simulator/mod.rs"]
#[allow(dead_code, reason = "the unit tests use the rest")]
pub(crate) mod simulator;
pub(crate) mod wire;
pub(crate) mod workers;

use std::io::Write as _;

/// Prints a line whether the test passes or not, which `eprintln!` does not.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

//! `topology`, the command line of hatchery. Some modules are public for the integration tests only.

mod args;
mod argument_errors;
mod besides;
mod commands;
mod connect;
mod definitions;
mod drawing;
mod exit;
#[cfg(test)]
mod golden;
#[doc(hidden)]
pub mod handler;
mod help;
#[cfg(feature = "fail-points")]
mod kill;
mod leftover_types;
mod listen;
mod load;
mod log;
mod output;
mod plan_document;
mod plan_file;
mod progress;
mod render;
mod server;
mod stop;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod verbs;

#[doc(hidden)]
pub use verbs::schema;

use std::process::ExitCode;

/// Runs the verb that the arguments name, and returns its exit code.
#[must_use]
pub fn main() -> ExitCode {
    commands::secure();
    let cli = commands::parse();
    commands::log(&cli);
    commands::report(commands::run(cli)).into()
}

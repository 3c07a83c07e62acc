//! `topology`: the command line of hatchery.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::secure();
    let cli = cli::parse();
    cli::log(&cli);
    cli::report(cli::run(cli)).into()
}

//! `topology`: the command line of hatchery.

use std::process::ExitCode;

fn main() -> ExitCode {
    hatchery_cli::main()
}

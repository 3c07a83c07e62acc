//! `topology`: the command line of hatchery.

mod cli;
#[cfg(feature = "fail-points")]
mod kill;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "fail-points")]
    if let Err(error) = kill::arm() {
        panic!("{error:#}");
    }
    cli::secure();
    let cli = cli::parse();
    cli::log(&cli);
    cli::report(cli::run(cli)).into()
}

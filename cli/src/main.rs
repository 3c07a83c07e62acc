//! `topology`: the command line of hatchery.

use std::process::ExitCode;

/// An event is some hundred small allocations, made in one thread and freed in another. That is what glibc's allocator is slow
/// at: it took 28 % of a replay's CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    hatchery_cli::main()
}

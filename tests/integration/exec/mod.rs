//! Programs as handlers: `topology work --exec`.

mod answers;
mod environment;
mod leaks;
mod programs;

//! Programs as handlers: `topology work --exec`.

mod answers;
mod bytes;
mod leaks;
mod programs;

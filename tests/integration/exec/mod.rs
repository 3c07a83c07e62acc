//! Programs as handlers: `topology work --exec`.

mod answers;
mod bytes;
mod environment;
mod leaks;
mod programs;
mod said;

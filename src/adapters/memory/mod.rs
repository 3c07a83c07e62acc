//! A broker and a register that keep everything in memory, for tests.

mod broker;
mod consumer;
mod look;
pub mod queues;
mod register;
#[cfg(test)]
pub(crate) mod script;
mod shared;

pub use broker::{MemoryBroker, Waiting};
pub use register::MemoryRegister;

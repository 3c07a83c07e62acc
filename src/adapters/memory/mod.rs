//! A broker and a register that keep everything in memory, for tests.

pub mod queues;
mod register;

pub use register::MemoryRegister;

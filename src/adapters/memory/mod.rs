//! Adapters that keep everything in memory, for tests.

mod register;

pub use register::MemoryRegister;

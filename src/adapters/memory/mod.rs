//! Fakes that keep everything in memory, for the tests of the flow.

mod register;

pub use register::MemoryRegister;

//! A broker and a register that keep everything in memory, for tests and for `topology dev`.

mod broker;
mod consumer;
mod follower;
#[cfg(feature = "internals")]
mod look;
pub mod queues;
mod register;
mod reports;
pub mod script;
mod vhost;

pub use broker::{MemoryBroker, Waiting};
pub use register::MemoryRegister;

//! The library's front door: a topology, a broker and a Redis make publishers and workers.

mod builder;
mod hatchery;
#[cfg(any(test, feature = "internals", feature = "testing"))]
mod in_memory;
mod life_cycle;

#[cfg(any(test, feature = "internals", feature = "testing"))]
pub use self::in_memory::InMemory;
pub use self::{
    builder::Builder,
    hatchery::{ConnectError, Hatchery},
    life_cycle::LifeCycleReader,
};

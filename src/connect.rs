//! The library's front door: a topology, a broker and a Redis make publishers and workers.

mod builder;
mod hatchery;
mod life_cycle;

pub use self::{
    builder::Builder,
    hatchery::{ConnectError, Hatchery},
    life_cycle::LifeCycleReader,
};

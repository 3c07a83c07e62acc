//! Where an event is.

mod counts;
mod locate;
mod placed;

pub use self::{
    counts::QueueCounts,
    locate::{EventLocation, locate},
    placed::{KnownEvent, Placed, placed},
};

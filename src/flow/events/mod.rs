//! What people do to events that wait: look for them, cancel them, put them off, run them now.
//!
//! RabbitMQ's queues are not touched. A cancelled event's message comes when it is due, and is dropped as stale; what is
//! moved is published again, and its former message is dropped likewise. The register says what waits, and
//! nothing is decided from its index but what is looked at.

mod bulk;
mod cancel;
mod error;
mod homes;
mod left_behind;
mod moved;
mod moving;
mod search;
mod sending;
mod shared;
#[cfg(test)]
mod tests;
mod which;

pub use self::{
    error::EventsError,
    left_behind::LeftBehind,
    moved::{MoveOutcome, PayloadNotKept},
    shared::Events,
    which::EventSelector,
};

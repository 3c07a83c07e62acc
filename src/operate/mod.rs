//! Finds events that wait, cancels them, reschedules them, runs them now.
//!
//! For events that wait, RabbitMQ's queues are not changed. The message of a cancelled event is delivered when it is due, and dropped as stale. A moved
//! event is published again, and its former message is dropped the same way. The register's index only decides which events are
//! looked at; the entry of each event decides the rest.

mod backend;
mod bulk;
mod cancel;
mod error;
mod homes;
mod move_outcome;
mod moving;
mod republish;
mod search;
mod selector;
#[cfg(test)]
mod tests;

pub use self::{
    backend::Events,
    error::EventsError,
    move_outcome::{MoveOutcome, PayloadNotKept},
    selector::EventSelector,
};

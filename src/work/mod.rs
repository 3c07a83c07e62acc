//! The worker's half of the event's way.
//!
//! - [`builder`], `worker`, `error`: the public [`Worker`]: its handlers, its start, its end, and why it ends early.
//! - `event_loop`: one task for a type, which is the worker in one page; `lane` has the type's settings and handler, and what all types
//!   share; `stage` has the types of a delivery on its way.
//! - `gate`: may a type take and start events? `switches`, `switch_reader`: what people have paused. `breaker`: too many of its runs
//!   were errors; `breakers`: what other workers count.
//! - `consumer`, `open`, `execute`, `follow_up`: the steps, in the order of the way; `not_run`: an event that does not go on.
//! - `journal`: is told what has happened to an event.
//! - `source`: messages of a foreign queue become events.
//! - `alone`: the same steps for one event by itself; `ordered` and `quarantine` use it.
//! - `isolation`, `late`, `leases`, `renewal`, `busy_wait`, `counters`, `readiness`: what the steps need.
//!
//! The decisions are in [`crate::domain`]; here is the order of effects: the broker's confirm first, then the
//! register, then the acknowledgement, so that a crash between any two of them repeats work and loses nothing.

mod alone;
mod breaker;
mod breakers;
mod builder;
mod busy_wait;
mod cause;
mod clock_watch;
mod consumer;
mod counters;
mod error;
mod event_loop;
mod execute;
mod follow_up;
mod gate;
mod healing;
mod isolation;
mod journal;
mod lane;
mod late;
mod leases;
mod not_run;
mod open;
mod ordered;
mod quarantine;
mod readiness;
mod register_meters;
mod renewal;
mod scheduled;
mod source;
mod stage;
mod stateful;
mod switch_reader;
mod switches;
#[cfg(test)]
mod tests;
mod worker;

pub use self::{builder::Worker, counters::Summary, error::WorkError, readiness::Readiness};

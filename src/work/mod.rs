//! The worker's half of the event's way.
//!
//! - [`builder`], `worker`, `error`: the public [`Worker`]: its handlers, its start, its end, and why it ends early.
//! - `event_loop`: one task for a type, which is the worker in one page; `lane` has the type's settings and handler, `stage` the
//!   types of a delivery on its way.
//! - `gate`: may a type take and start events?
//! - `consumer`, `open`, `claim`, `execute`, `follow_up`, `settle`: the steps, in the order of the way.
//! - `source`: messages of a foreign queue become events.
//! - `alone`: the same steps for one event by itself; `ordered` and `quarantine` use it.
//! - `isolation`, `late`, `leases`, `renewal`, `not_run`, `busy_wait`, `counters`, `meters`, `readiness`, `common`: what the steps need.
//!
//! The decisions are in [`crate::domain`]; here is the order of effects: the broker's confirm first, then the
//! register, then the acknowledgement, so that a crash between any two of them repeats work and loses nothing.

mod alone;
mod builder;
mod busy_wait;
mod claim;
mod clock_watch;
mod common;
mod consumer;
mod counters;
mod error;
mod event_loop;
mod execute;
mod follow_up;
mod gate;
mod healing;
mod isolation;
mod lane;
mod late;
mod leases;
mod meters;
mod not_run;
mod open;
mod ordered;
mod quarantine;
mod readiness;
mod renewal;
mod schedule_meters;
mod scheduled;
mod settle;
mod source;
mod stage;
mod stateful;
#[cfg(test)]
mod tests;
mod worker;

pub use self::{builder::Worker, counters::Summary, error::WorkError, readiness::Readiness};

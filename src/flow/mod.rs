//! The event's way, in reading order: [`publish`] with `versions`, then on the worker's side `lane`, `consume`, `claim`, `work`, `lease` and `settle`, or
//! `in_order` for what keeps order and `aside` for what does without the register; [`worker`] and `run` begin and end it.
//! [`events`] is for people.
//!
//! What is decided is decided in [`crate::domain`]; here is the order of effects. On both sides it is the same: the
//! broker's confirm first, then the register, then the acknowledgement, so that a crash between any two of them repeats
//! work and loses nothing.

mod aside;
mod batch;
mod claim;
mod common;
mod consume;
pub(crate) mod counters;
mod cramped;
mod end_turn;
pub mod events;
mod in_order;
mod lane;
mod lease;
pub(crate) mod new_event;
mod not_run;
mod outage;
pub(crate) mod publish;
#[cfg(test)]
mod publish_tests;
mod quiet;
mod register;
mod returned;
mod routes;
mod run;
mod settle;
mod stateful;
#[cfg(test)]
mod tests;
mod trial;
pub(crate) mod versions;
mod work;
pub(crate) mod worker;

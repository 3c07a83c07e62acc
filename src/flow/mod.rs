//! The event's way, in reading order: [`publish`], then on the worker's side [`consume`], [`claim`], [`work`],
//! [`settle`] and [`shutdown`]; [`aside`] for types that do without the register, [`events`] for people.
//!
//! What is decided is decided in [`crate::domain`]; here is the order of effects. On both sides it is the same: the
//! broker's confirm first, then the register, then the acknowledgement, so that a crash between any two of them repeats
//! work and loses nothing.

pub mod aside;
mod batch;
pub mod claim;
pub mod consume;
pub mod events;
mod in_order;
pub mod new_event;
pub mod publish;
#[cfg(test)]
mod publish_tests;
pub mod register;
pub mod settle;
pub mod shutdown;
pub mod tally;
#[cfg(test)]
mod tests;
mod ways;
pub mod work;

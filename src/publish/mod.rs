//! The publisher's half of the event's way: [`publisher`] with `send`, and with `versions`, which asks the register in batches and stops
//! asking for a second where the register does not answer.
//!
//! The order of effects: reserve a version, publish, wait for the broker's confirm, record the version.

pub(crate) mod new_event;
pub(crate) mod published;
pub(crate) mod publisher;
mod run_for_test;
pub(crate) mod send;
#[cfg(test)]
mod tests;
pub(crate) mod versions;

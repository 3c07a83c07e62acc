//! Schedules: chains of events, each of which arms the next one. `docs/schedules-protocol.md` describes the protocol.
//!
//! A [`definition`] says what a schedule publishes. Its [`rule`] says when, and its [`calendar`] computes the instants. A [`link`] is the
//! place of one event in the chain, and a [`template`] makes the event. [`forged`] finds events that only look like one of a chain. [`state`]
//! is what Redis knows of the chain, with its newest [`run`].

pub mod calendar;
pub mod definition;
pub mod forged;
pub mod link;
pub mod rule;
pub mod run;
pub mod state;
pub mod template;

#[cfg(test)]
mod tests;

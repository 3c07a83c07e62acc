//! What hatchery knows, with no I/O: no broker, no Redis, no clock, no randomness.
//!
//! In the order in which an event meets it: the file ([`spec`]) and what it compiles to ([`compile`]), proved safe ([`safety`]), the event and
//! its form on the wire ([`event`], [`message`], [`wire`]), where a delay leads ([`delay`]), what the register is asked
//! ([`register`]), what keeps it from answering ([`trouble`]), and what follows from a handler's answer ([`settlement`]). Of the topology there are also pictures
//! ([`graph`]) and what RabbitMQ's own tools import ([`definitions`]).

pub mod compile;
pub mod delay;
pub mod event;
pub(crate) mod kind;
mod message;
pub mod names;
pub mod register;
pub mod safety;
pub mod settlement;
pub mod spec;
pub mod time;
pub mod trouble;
pub mod ttl;
pub mod versions;
pub mod wire;
pub mod words;

//! The rules of hatchery as pure functions and values, with no I/O: no broker, no Redis, no clock, no randomness.
//!
//! [`spec`] holds the file's settings. [`compile`] turns them into the objects of the broker ([`names`] names them),
//! and [`safety`] proves that these lose no event. [`event`] is an event, [`message`] a message of AMQP, and [`wire`]
//! turns each into the other. [`delay`] chooses the route of a delayed event. [`register`] defines the calls to the
//! register and their answers, [`trouble`] the causes of its outages. [`settlement`] decides what follows from a
//! handler's answer. [`schedule`] defines periodic events.
//! [`breaker`] decides when a type has too many errors. [`switches`] are what people have paused. [`life_cycle`] is the stream
//! that is told what happens to events. [`time`] calculates with times, and compares a machine's clock with Redis's.

pub mod breaker;
pub mod compile;
pub mod delay;
mod desired;
pub mod event;
pub(crate) mod kind;
pub mod life_cycle;
mod message;
pub mod names;
pub mod reason;
pub mod register;
pub mod safety;
pub mod schedule;
pub mod settlement;
pub mod source;
pub mod spec;
pub mod switches;
pub mod time;
pub(crate) mod transition;
pub mod trouble;
pub mod ttl;
pub mod versions;
#[cfg(feature = "internals")]
pub mod whereabouts;
pub mod wire;
pub mod words;

//! One file, `topology.yaml`, becomes a RabbitMQ topology that delays, delivers, retries and buries events.
//!
//! RabbitMQ's own TTL queues and dead-letter exchanges are the only timer, and a few Redis keys on (type, reference)
//! say which copies of an event are stale. Begin with [`connect`]; the command line is the binary `topology`.
//!
//! # The event's way
//!
//! ```text
//!  Publisher ── reserve a version ── publish ── confirm ── record
//!                                       │
//!            scheduler ─► processor     │ now
//!            scheduler ─► hatchery ─► processor       a named delay
//!            scheduler ─► ladder ─► … ─► processor    any other
//!                                       │
//!  Worker    deliver ─► decode ─► due? ─► claim ─► handler ─► follow-up ─► settle ─► acknowledge
//!                         │        │        │                     │
//!                    dead-letter  ladder  stale, replaced: drop   retry, requeue or dead-letter,
//!                      (poison)           busy: again in a moment published and confirmed
//! ```
//!
//! # Layout
//!
//! Dependencies point one way: `cli -> flow -> ports -> domain`, and `adapters -> ports`.
//!
//! - [`domain`]: what hatchery knows, pure: the topology and what it compiles to, events and their form on the wire,
//!   the register's questions, what follows an outcome.
//! - [`mod@file`]: reading `topology.yaml`, with errors that point at the line, and its JSON Schema.
//! - [`ports`]: what the flow needs from outside: a broker, a register, the management API, a clock.
//! - [`flow`]: the event's way, in reading order, and the order of its effects.
//! - [`handler`]: what a worker runs: a closure, a program, or a service.
//! - [`adapters`]: RabbitMQ, its management API, Redis; and fakes in memory for the flow's tests.

// The simulator of a broker that the unit tests share with the integration tests names this crate from outside.
#[cfg(test)]
extern crate self as hatchery;

pub mod adapters;
mod connect;
pub mod domain;
pub mod file;
pub mod flow;
pub mod handler;
pub mod ports;

pub use adapters::tls::{Tls, TlsError};
pub use connect::{Builder, ConnectError, Hatchery, connect};
pub use domain::{
    event::Event,
    register::{
        Cancelled,
        search::{Filter, Known, State},
    },
    spec::Topology,
    ttl::{TimeError, Ttl, TtlError, parse_duration, parse_time},
};
pub use file::{FileError, ReadError, read_file};
pub use flow::{
    events::{Events, EventsError, Moved, NotKept, Which},
    new_event::NewEvent,
    publish::{PublishError, Published, Publisher},
    tally::Summary,
    worker::{WorkError, Worker},
};
pub use handler::{Handler, HandlerError, Outcome, Run};
pub use tokio_util::sync::CancellationToken;

/// The README's examples are run with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

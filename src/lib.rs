//! One file, `topology.yaml`, becomes a RabbitMQ topology that delays, delivers, retries and buries events.
//!
//! RabbitMQ's own TTL queues and dead-letter exchanges are the only timer, and a few Redis keys on (type, reference)
//! say which copies of an event are stale. This is the library, for programs in Rust that publish and handle events;
//! the binary `topology` does the rest.
//!
//! # Begin here
//!
//! The file names the types of events:
//!
//! ```yaml
//! version: 1
//! name: payroll
//! types:
//!   hr-import:
//!     coalesce: { immediate: latest, delayed: each-time, window: 2s }
//!   mail: {}
//! ```
//!
//! `topology apply` declares it on the broker, once and after each change, and then programs connect:
//!
//! ```no_run
//! use std::{sync::Arc, time::Duration};
//! use hatchery::{EventKind, Hatchery, NewEvent, Outcome, Run};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Employee { name: String, salary: u32 }
//!
//! /// The type `hr-import` of the file, and what its events carry.
//! struct HrImport;
//!
//! impl EventKind for HrImport {
//!     const TYPE: &'static str = "hr-import";
//!     type Payload = Employee;
//! }
//!
//! /// The state that all runs share.
//! struct Payroll { minimum: u32 }
//!
//! impl Payroll {
//!     async fn import(self: Arc<Self>, employee: Employee, run: Run) -> Result<(), Outcome> {
//!         if employee.salary < self.minimum {
//!             return Err(Outcome::dead_letter("below the minimum")); // or retry, requeue, discard
//!         }
//!         tokio::fs::write("salaries.csv", employee.salary.to_string()).await?; // an error means a retry
//!         Ok(())
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     tracing_subscriber::fmt().init(); // without a subscriber nothing is logged
//!     let topology = hatchery::read_file("topology.yaml")?;
//!     let hatchery = Hatchery::builder(topology).amqp_url("amqp://localhost").name("payroll").connect().await?;
//!
//!     let ada = Employee { name: "Ada".to_owned(), salary: 6_000 };
//!     let raise = NewEvent::of(HrImport, &ada)?.reference("1234").delay(Duration::from_secs(90));
//!     hatchery.publisher().publish(raise).await?;
//!
//!     // Concurrency, time limits and retries are in the file.
//!     let worker = hatchery.worker().state(Arc::new(Payroll { minimum: 1_000 })).on(HrImport, Payroll::import);
//!     let summary = worker.run_until(hatchery::shutdown_signal()?).await?;
//!     println!("{} done, {} failed", summary.done, summary.retried);
//!     hatchery.close().await;
//!     Ok(())
//! }
//! ```
//!
//! | who wants to | begins with |
//! | --- | --- |
//! | read the file | [`read_file`] |
//! | connect | [`Hatchery::builder`] |
//! | publish | [`Hatchery::publisher`], [`NewEvent`], [`EventKind`] |
//! | handle events | [`Hatchery::worker`], [`Worker`], [`Outcome`], [`IntoOutcome`], [`shutdown_signal`] |
//! | test handlers, retries and coalescing without a server | the module `testing`, of the feature with this name |
//! | look for events that wait, cancel them, give them another time | [`Hatchery::events`], [`Filter`], [`Which`] |
//! | read times and durations as the file and the command line do | [`parse_time`], [`parse_duration`], [`Ttl`] |
//!
//! A handler may run more than once for one event: after a failure, and after a crash. `docs/guarantees.md` says when,
//! and what is promised; [`Run::fence`] is for those who write state.
//!
//! Everything that awaits runs in a `tokio` runtime with time and I/O enabled, as `#[tokio::main]` makes it.
//!
//! What happens is logged by `tracing` with the target `hatchery`, and `docs/operations.md` has what is counted by
//! `metrics` for whatever recorder the program installs before it connects; without a subscriber and a recorder both
//! are silent. The filter `hatchery=info` shows what `topology work` does. Without a target, as with `info`, a log also
//! has what the AMQP library below says of connections that are closed and objects that are missing: as errors, also
//! where they are none here.
//!
//! # What to rely on
//!
//! The interface is what stands at the root of this crate, with the methods, variants and public fields that it has
//! there, [`file::read`] for a topology that is part of the program, and the module `testing` of the feature with this
//! name. It follows semantic versioning. Most errors, and most of what is told rather than chosen, are `#[non_exhaustive]`: match them with a `_`.
//!
//! **The feature `internals` is not part of it.** It shows modules to the command line, the tests and the benchmarks, which are
//! crates of their own, and they change in any release. That goes for functions which take or give what is in a module alone, like
//! [`Worker::new`] or [`Event::subject`], for fields of such types, like those of [`Topology::types`], and for the
//! methods of [`Slot`], [`Stamp`] and [`Topology`], which are for those who work on hatchery itself.
//!
//! What stands in the interface of other crates comes with it, in the version that fits: `hatchery::jiff` for times,
//! and likewise `bytes` for payloads, `serde_json` for what is wrong with them, `tower_service` for handlers with
//! layers, `Stream` for what comes bit by bit (its methods are in `futures-util` 0.3), `async_trait` for a [`Handler`]
//! of one's own, and tokio-util's `CancellationToken`. Payloads are any types of `serde` 1.
//!
//! The feature `fail-points` is for tests that kill the process at a named step. It is never on in a release.
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
//! Dependencies point one way: `flow -> ports -> domain`, and `adapters -> ports`. The command line is a crate of its own, in
//! `cli/`.
//!
//! - `domain`: what hatchery knows, pure: the topology and what it compiles to, events and their form on the wire,
//!   the register's questions, what follows an outcome.
//! - [`mod@file`]: reading `topology.yaml`, with errors that point at the line, and its JSON Schema.
//! - `ports`: what the flow needs from outside: a broker, a register, a clock.
//! - `flow`: the event's way, in reading order, and the order of its effects.
//! - `handler`: what a worker runs.
//! - `adapters`: RabbitMQ and Redis; and a broker and a register in memory, for tests.
//! - `testing`: the whole of it in memory, with a clock that a test moves.

// What only the command line uses is compiled all the same: one build serves both.
#![cfg_attr(not(feature = "internals"), allow(dead_code, unreachable_pub, unused_imports))]

// The unit tests share a module with the integration tests, which names this crate from outside.
#[cfg(test)]
extern crate self as hatchery;

mod adapters;
mod connect;
mod domain;
pub mod file;
mod flow;
mod handler;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod ports;
mod shutdown;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use connect::{Builder, ConnectError, Hatchery};
// The pages of these are the root's: who uses the library need not know in which module they are.
#[doc(inline)]
pub use {
    adapters::{
        rabbitmq::connection::AmqpUrlError,
        tls::{Tls, TlsError},
    },
    domain::{
        event::Event,
        kind::EventKind,
        register::{
            Cancelled, Slot, Stamp,
            search::{Filter, Known, State, StateError},
        },
        spec::Topology,
        trouble::Trouble,
        ttl::{TimeError, Ttl, TtlError, parse_duration, parse_time},
        words::{EventType, Reference, UnknownType, Word, WordError},
    },
    file::{FileError, Finding, ReadError, Refusal, read_file},
    flow::{
        events::{Events, EventsError, Moved, NotKept, Which},
        new_event::NewEvent,
        publish::{PublishError, Published, Publisher},
        tally::Summary,
        worker::{WorkError, Worker},
    },
    handler::{Handler, HandlerError, IntoOutcome, Outcome, Run},
    ports::{BrokerError, RegisterError},
    shutdown::shutdown_signal,
};
// What of other crates stands in the interface.
#[doc(no_inline)]
pub use {
    async_trait::async_trait, bytes, futures_util::Stream, jiff, serde_json, tokio_util::sync::CancellationToken,
    tower_service,
};

/// The README's examples are run with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! One file, `topology.yaml`, becomes a RabbitMQ topology that delays, delivers, retries and dead-letters events.
//!
//! RabbitMQ's own TTL queues and dead-letter exchanges are the only timer, and a few Redis keys on (type, reference)
//! tell which copies of an event are stale. This is the library, for programs in Rust that publish and handle events.
//! The command `topology` declares the topology on the broker, runs programs as handlers, and inspects events.
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
//! `topology apply` declares the topology on the broker, once and after each change. Then programs connect:
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
//! | task | begin with |
//! | --- | --- |
//! | read the file | [`read_file`] |
//! | connect | [`Hatchery::builder`] |
//! | publish | [`Hatchery::publisher`], [`NewEvent`], [`EventKind`] |
//! | make events of foreign messages | [`Worker::source`] |
//! | handle events | [`Hatchery::worker`], [`Worker`], [`Outcome`], [`IntoOutcome`], [`shutdown_signal`] |
//! | test handlers, retries and coalescing without a server | the module `testing`, of the feature with this name |
//! | look for events that wait, cancel them, give them another time | [`Hatchery::events`], [`Filter`], [`EventSelector`] |
//! | read times and durations as the file and the command line do | [`parse_time`], [`parse_duration`], [`Ttl`] |
//!
//! A handler may run more than once for one event: after a failure, and after a crash. `docs/guarantees.md` tells when, and
//! what is promised. [`Run::fence`] helps handlers that write state.
//!
//! Every `async` function of this crate runs in a `tokio` runtime with time and I/O enabled, as `#[tokio::main]` makes it.
//!
//! Logs and spans go to `tracing` with the target `hatchery`, and metrics to the recorder of `metrics` that the program installs
//! before it connects (`docs/reference/metrics.md` lists them); without a subscriber and a recorder both are silent.
//! [`TraceContext`] makes one trace of a publish and all runs of its event, for OpenTelemetry for instance. The filter
//! `hatchery=info` shows what `topology work` logs. A filter without a target, such as `info`, also shows the logs of
//! lapin, which reports closed connections and missing objects as errors even where hatchery expects them.
//!
//! # Stability
//!
//! The interface is the items at the root of this crate with their methods, variants and public fields, [`file::read`]
//! for a topology that is part of the program, and the module `testing` of the feature with this name. It follows
//! semantic versioning. Most errors and results are `#[non_exhaustive]`: match them with a `_`.
//!
//! **The feature `internals` is not part of the interface.** It shows modules to the command line, the tests and the
//! benchmarks, which are crates of their own, and they change in any release. The same holds for functions whose arguments
//! or results are types of such a module, like [`Worker::new`] or [`Event::subject`], for fields of such types, like
//! those of [`Topology::types`], and for the methods of [`DedupSlot`], [`CopyVersion`] and [`Topology`].
//!
//! Types of other crates that are part of the interface are re-exported in the version that fits: `hatchery::jiff` for
//! times, `tracing` for spans, `bytes` for payloads, `serde_json` for its errors, `tower_service` for handlers with layers, `Stream` for results
//! that come one by one (its methods are in `futures-util` 0.3), `async_trait` for implementations of [`Handler`], and
//! tokio-util's `CancellationToken`. Payloads are any types of `serde` 1.
//!
//! The feature `anyhow` lets handlers return `anyhow::Result`. The feature `fail-points` is for tests that kill the process at a
//! named step; no release enables it.
//!
//! # The event's way
//!
//! ```text
//!  Publisher ── reserve a version ── publish ── confirm ── record
//!               (if it coalesces)       │
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
//! Dependencies point one way: `publish`, `work`, `operate` -> `ports` -> `domain`, and `adapters -> ports`. The command line is a crate of its own, in
//! `cli/`.
//!
//! - `domain`: the rules, as pure functions and values: the topology and the objects that it compiles to, events and
//!   their form on the wire, the calls to the register, the consequence of each outcome.
//! - [`mod@file`]: reads `topology.yaml`, with errors that point at the line.
//! - `ports`: traits for a broker, a register and a clock.
//! - `publish`, `work`: the two halves of the event's way, and the order of its effects.
//! - `operate`: finds, cancels and moves events that wait.
//! - `routes`, `outage`, `meter`, `trace`: what the three have in common.
//! - `handler`: the functions, services and types that a worker runs.
//! - `adapters`: RabbitMQ and Redis; and a broker and a register in memory, for tests and for `topology dev`.
//! - `testing`: a topology in memory, with a clock that a test advances.

// Without the feature, nobody reaches what it shows.
#![cfg_attr(not(feature = "internals"), allow(unreachable_pub, unused_imports))]

// The unit tests share a module with the integration tests, which names this crate from outside.
#[cfg(test)]
extern crate self as hatchery;

/// A point in the event's way at which a test kills the process; nothing without the feature `fail-points`.
macro_rules! fail_point {
    ($name:literal) => {
        #[cfg(feature = "fail-points")]
        fail::fail_point!($name);
    };
}

mod adapters;
mod connect;
mod domain;
pub mod file;
mod handler;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod meter;
mod operate;
mod outage;
mod ports;
mod publish;
mod records;
mod routes;
mod schedules;
mod shutdown;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod trace;
mod work;

pub use connect::{Builder, ConnectError, Hatchery, LifeCycleReader};
// The documentation of these items is at the root: users need not know the modules.
#[doc(inline)]
pub use {
    adapters::{
        rabbitmq::connection::AmqpUrlError,
        tls::{Tls, TlsError},
    },
    domain::{
        event::Event,
        kind::EventKind,
        life_cycle::{LifeCycleRecord, Told, TransitionName},
        register::{
            Cancelled, CopyVersion, DedupSlot,
            event_info::EventInfo,
            event_state::{State, StateError},
            filter::Filter,
        },
        spec::Topology,
        transition::{Then, Transition},
        trouble::Trouble,
        ttl::{TimeError, Ttl, TtlError, parse_duration, parse_time},
        words::{EventType, Reference, UnknownType, Word, WordError},
    },
    file::{FileError, Finding, ReadError, Refusal, read_file},
    handler::{Handler, IntoOutcome, Outcome, Run},
    operate::{EventSelector, Events, EventsError, MoveOutcome, PayloadNotKept},
    ports::{BrokerError, RegisterError},
    publish::{
        new_event::NewEvent,
        published::{PublishError, Published},
        publisher::Publisher,
    },
    shutdown::shutdown_signal,
    trace::TraceContext,
    work::{Readiness, Summary, WorkError, Worker},
};
// Items of other crates that are part of the interface.
#[doc(no_inline)]
pub use {
    async_trait::async_trait, bytes, futures_util::Stream, jiff, serde_json, tokio_util::sync::CancellationToken,
    tower_service, tracing,
};

/// The README's examples are run with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

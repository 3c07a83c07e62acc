//! Plans, applies and looks after a topology on RabbitMQ, as the command `topology` does.
//!
//! A program that applies its topology at its start needs no step of a deployment for it. Some of its processes may start at once: one
//! of them applies, and the others wait for its lock, up to [`Options::lock_timeout`], and find nothing to do.
//!
//! A process with an older file takes back what a newer one has applied, and removes the schedules that only the newer file has. Where two
//! versions run side by side, as during a roll-out, apply at one place instead, for example in a job of the deployment.
//!
//! ```no_run
#![doc = include_str!("../examples/apply.rs")]
//! ```
//!
//! [`Admin::status`] tells what is wrong with a topology that is applied, with a command for each finding.
//!
//! The modules are for the command and for the tests of this repository. They change in any release.

/// A point of an apply, or of a change of dead letters, at which a test kills the process; nothing without the feature `fail-points`.
macro_rules! fail_point {
    ($name:literal) => {
        #[cfg(feature = "fail-points")]
        fail::fail_point!($name);
    };
}

mod admin;
mod apply;
mod backend;
#[doc(hidden)]
pub mod batch;
#[doc(hidden)]
pub mod breakers;
#[doc(hidden)]
pub mod broker;
#[doc(hidden)]
pub mod dead_letters;
mod destroy;
mod error;
#[doc(hidden)]
pub mod event_view;
#[cfg(test)]
#[path = "../../tests/support/events.rs"]
mod events;
#[doc(hidden)]
pub mod figures;
#[doc(hidden)]
pub mod graph;
mod in_memory;
mod leftover_types;
#[doc(hidden)]
pub mod live;
#[doc(hidden)]
pub mod location;
#[doc(hidden)]
pub mod management;
#[doc(hidden)]
pub mod names;
#[doc(hidden)]
pub mod notation;
#[doc(hidden)]
pub mod plan;
mod register;
mod results;
#[doc(hidden)]
pub mod schedules;
#[doc(hidden)]
pub mod status;
mod switches;
#[doc(hidden)]
pub mod text;
#[doc(hidden)]
pub mod trace;
mod watch;

#[doc(hidden)]
pub use admin::one_broker;
pub use hatchery::internals::switches::{Name, Pause, Paused, PausedBy, Switches};
pub use {
    admin::Admin,
    backend::Backend,
    error::AdminError,
    in_memory::{AppliedInMemory, InMemoryAdmin},
    notation::Until,
    register::Looked,
    results::{
        Applied, Asked, Doomed, LeftoverType, LeftoverTypes, Options, PauseChange, Planned, ScheduleChange,
        ScheduleChanges,
    },
    status::{Found, Severity, SourceLine, Status, TypeLine, Unlisted, Verdict},
    switches::{ChangedPauses, NotFollowing, PauseLine, Switched},
    watch::Watch,
};

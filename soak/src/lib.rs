//! The common part of the soak and the benchmark: servers of their own, an applied topology, progress, tables and notes of runs.

#![allow(
    clippy::len_without_is_empty,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    clippy::new_without_default,
    reason = "only programs of this repository use this, and all its errors end them"
)]

use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod acknowledged;
pub mod chance;
pub mod console;
pub mod lateness;
pub mod plan;
pub mod runs;
pub mod servers;
pub mod stage;
pub mod table;

/// Locks notes, those of a thread that has panicked too.
pub fn lock<T>(notes: &Mutex<T>) -> MutexGuard<'_, T> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

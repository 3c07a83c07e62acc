//! The notes of what was published and what ran.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use super::plan::Kind;
use crate::harness::lock;

/// One of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The last release.
    Released,
    /// The version of this source tree.
    This,
}

impl Side {
    pub(super) const BOTH: [Self; 2] = [Self::Released, Self::This];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::This => "this",
        }
    }

    pub(super) const fn other(self) -> Self {
        match self {
            Self::Released => Self::This,
            Self::This => Self::Released,
        }
    }
}

/// A confirmed event. Times are microseconds since 1970.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) kind: Kind,
    pub(super) publisher: u32,
    /// The place among the publisher's events of this kind, from 0.
    pub(super) place: u32,
    pub(super) by: Side,
    /// The time before which it must not run.
    pub(super) due: i64,
    /// The time at which a cancel of it returned.
    pub(super) cancelled: Option<i64>,
}

impl Sent {
    pub(super) fn id(&self) -> String {
        format!("{}-{}-{}", self.kind.name(), self.publisher, self.place)
    }
}

/// A run. Times are microseconds since 1970.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) id: String,
    pub(super) event_type: String,
    pub(super) by: Side,
    pub(super) worker: u32,
    pub(super) attempts: u32,
    pub(super) has_version: bool,
    pub(super) begun: i64,
    pub(super) ended: i64,
}

#[derive(Clone, Default)]
pub(super) struct SharedNotes(Arc<Mutex<Notes>>);

#[derive(Default)]
pub(super) struct Notes {
    pub(super) sent: Vec<Sent>,
    /// In the order in which they began.
    pub(super) runs: Vec<Run>,
    begun: HashMap<String, usize>,
}

impl Notes {
    /// Notes the begin of a run. Returns the place of the run, and how often the event has begun before.
    pub(super) fn begin(&mut self, run: Run) -> (usize, usize) {
        let before = self.begun.entry(run.id.clone()).or_default();
        *before += 1;
        let before = *before - 1;
        self.runs.push(run);
        (self.runs.len() - 1, before)
    }
}

impl SharedNotes {
    pub(super) fn lock(&self) -> MutexGuard<'_, Notes> {
        lock(&self.0)
    }
}

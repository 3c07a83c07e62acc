//! What the register tells `topology status` beside the protocol: how runs ended, and which events have waited longest.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use super::event_info::EventInfo;
use crate::domain::words::EventType;

/// The runs of a type that have ended in some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedRuns {
    /// All of them.
    pub ended: u64,
    /// Those that have failed or timed out, also those after which the event was given up.
    pub failed: u64,
    /// Why the last of these failed.
    pub error: Option<String>,
}

impl EndedRuns {
    /// Adds runs of an earlier time.
    pub fn add_earlier(&mut self, earlier: Self) {
        self.ended += earlier.ended;
        self.failed += earlier.failed;
        self.error = self.error.take().or(earlier.error);
    }
}

/// Records of what happened to events that the broker has not taken, in some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unrecorded {
    /// Their number.
    pub records: u64,
    /// Why the last one was not taken.
    pub why: Option<String>,
}

/// What workers and publishers have told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// When Redis was emptied last, if that was within a day.
    pub emptied: Option<Timestamp>,
    /// The runs that ended in each slice of ten seconds, with its age; the newest first.
    pub runs: Vec<(Duration, BTreeMap<EventType, EndedRuns>)>,
    /// The records that workers could not publish in the last half an hour.
    pub unrecorded: Unrecorded,
}

/// The events of a type that have waited longest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LongestWaiting {
    /// The events, the one that was due first before the others.
    pub events: Vec<EventInfo>,
    /// Whether there may be more: not all were looked at.
    pub may_be_more: bool,
}

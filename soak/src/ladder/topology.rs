//! The topology of hatchery's side, and what the other side has like it.

/// What both sides take in advance, and what ours runs at a time.
pub(super) const TOPOLOGY: &str = "\
version: 1
name: soak
ladder: { resolution: 250ms, horizon: 365d }
types:
  timed: { prefetch: 200, concurrency: 16 }
";
pub(super) const TYPE: &str = "timed";

pub(super) const PREFETCH: u16 = 200;

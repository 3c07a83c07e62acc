//! The topology of hatchery's side, and the settings that bare lapin shares with it.

/// The topology. Both sides have the same prefetch; the concurrency applies only to hatchery.
pub(super) const TOPOLOGY: &str = "\
version: 1
name: soak
ladder: { resolution: 250ms, horizon: 365d }
types:
  timed: { prefetch: 200, concurrency: 16 }
";
pub(super) const TYPE: &str = "timed";

pub(super) const PREFETCH: u16 = 200;

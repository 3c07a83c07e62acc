//! The file and the broker: what `plan` and `apply` do to a real one.

mod adopted;
mod applied;
mod blocked;
mod classic;
mod destroyed;
mod drained;
mod failing;
mod interrupted;
mod left_types;
mod lock;
mod ordered;
mod permissions;
mod planned;
mod port;
mod pruned;
mod routes;
mod simulated;

/// Everything that the compiler makes, with a ladder that is quick to climb.
pub(crate) const TOPOLOGY: &str = "\
version: 1
name: billing
hatcheries: [50ms, 1h]
ladder: { resolution: 10ms, horizon: 1s }
types:
  hr-import: { retry: { delays: [20ms, 1h] } }
  mail: { retry: { delays: [20ms] } }
";

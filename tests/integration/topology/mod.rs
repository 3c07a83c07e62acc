//! `plan`, `apply` and `destroy` on a real broker, and the behaviour of RabbitMQ that they rely on.

mod adopted;
mod applied;
mod blocked;
mod classic;
mod control;
mod destroyed;
mod drained;
mod failing;
mod interrupted;
mod left_types;
mod life_cycle;
mod lock;
mod paused;
mod permissions;
mod planned;
mod port;
mod routes;
mod simulated;

/// A topology with every kind of object, and with a ladder whose delays are short.
pub(crate) const TOPOLOGY: &str = "\
version: 1
name: billing
hatcheries: [50ms, 1h]
ladder: { resolution: 10ms, horizon: 1s }
types:
  hr-import: { retry: { delays: [20ms, 1h] } }
  mail: { retry: { delays: [20ms] } }
";

//! Opens the breakers.

use hatchery::Topology;
use hatchery_admin::breakers::Breakers;

use crate::{args::Common, connect};

/// Returns the breakers. Redis has their states, so nothing connects to the broker.
pub(super) fn breakers(common: &Common, topology: Topology) -> anyhow::Result<Breakers> {
    Ok(Breakers(connect::builder(common, topology, "topology breaker")?.events().map_err(connect::usage)?))
}

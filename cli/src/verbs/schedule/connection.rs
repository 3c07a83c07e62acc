//! Opens the schedules, with or without a connection to the broker.

use hatchery::Topology;
use hatchery_admin::schedules::Schedules;

use crate::{args::Common, connect, exit::Exit};

/// Calls `act` with the schedules. Fails if the broker cannot be reached or the topology was never applied.
pub(super) async fn with_schedules(
    common: &Common,
    topology: Topology,
    act: impl AsyncFnOnce(&Schedules) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let hatchery = connect::connect(common, topology, "topology schedule").await?;
    let exit = match hatchery.require_topology().await {
        Ok(()) => act(&Schedules(hatchery.events())).await,
        Err(error) => Err(error.into()),
    };
    hatchery.close().await;
    exit
}

/// Returns the schedules, without a connection to the broker: Redis has their state.
pub(super) fn states(common: &Common, topology: Topology) -> anyhow::Result<Schedules> {
    connect::events(common, topology, "topology schedule").map(Schedules)
}

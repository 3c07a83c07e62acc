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

/// Calls `act` with the schedules, without a connection to the broker: Redis has their state.
pub(super) async fn with_states(
    common: &Common,
    topology: Topology,
    act: impl AsyncFnOnce(&Schedules) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let events = connect::builder(common, topology, "topology schedule")?.events().map_err(connect::usage)?;
    act(&Schedules(events)).await
}

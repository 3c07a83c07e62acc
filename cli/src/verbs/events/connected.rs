//! The events, over a connection to the broker where there is one.

use std::time::Duration;

use hatchery::{Builder, ConnectError, Events, Hatchery, Topology};

use crate::{args::Common, connect, exit::Exit, output::Output};

/// How long the broker may take to answer. What is asked here is Redis's to answer, so nobody waits longer than this for the broker.
const BROKER_LIMIT: Duration = Duration::from_secs(5);

/// The events, for whoever does without a broker that is away.
///
/// One that answers is heeded: it may refuse this client, it says whether the topology was applied, and the register does not answer a broker
/// that it is not the register of.
pub(super) async fn with_events(
    common: &Common,
    topology: Topology,
    output: Output,
    act: impl AsyncFnOnce(&Events) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let builder = connect::builder(common, topology, NAME)?;
    let away = match tokio::time::timeout(BROKER_LIMIT, connect_applied(builder.clone())).await {
        Ok(Ok(hatchery)) => return with_broker(hatchery, act).await,
        Ok(Err(ConnectError::Broker(error))) if error.is_transient() => error.to_string(),
        Ok(Err(error)) => return Err(connect::usage(error)),
        Err(_) => format!("the broker does not answer within {} s", BROKER_LIMIT.as_secs()),
    };
    output.warn(&format!(
        "{away}. Redis alone is asked: whether these are the events of this broker, and whether the topology was applied, is not known"
    ));
    act(&builder.events().map_err(connect::usage)?).await
}

/// The events, for whoever may have to publish.
pub(super) async fn with_events_of_broker(
    common: &Common,
    topology: Topology,
    act: impl AsyncFnOnce(&Events) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let builder = connect::builder(common, topology, NAME)?;
    with_broker(connect_applied(builder).await.map_err(connect::usage)?, act).await
}

const NAME: &str = "topology events";

/// Connects to a broker that has the topology.
async fn connect_applied(builder: Builder) -> Result<Hatchery, ConnectError> {
    let hatchery = builder.connect().await?;
    if let Err(error) = hatchery.require_topology().await {
        hatchery.close().await;
        return Err(error.into());
    }
    Ok(hatchery)
}

async fn with_broker(
    hatchery: Hatchery,
    act: impl AsyncFnOnce(&Events) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let exit = act(&hatchery.events()).await;
    hatchery.close().await;
    exit
}

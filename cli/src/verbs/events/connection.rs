//! Opens the view of events, with a connection to the broker if the broker can be reached.

use std::time::Duration;

use hatchery::{Builder, ConnectError, Events, Hatchery, Topology};

use crate::{args::Common, connect, exit::Exit, output::Output};

/// How long the broker may take to answer. The questions go to Redis, so a person need not wait longer for the broker.
const BROKER_LIMIT: Duration = Duration::from_secs(5);

/// Calls `act` with the events. If the broker cannot be reached, warns and asks only Redis.
///
/// If the broker answers, its errors count: it may refuse this client or lack the topology, and the register may belong
/// to another broker.
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
        "{away}. Only Redis is asked: whether these are the events of this broker, and whether the topology was applied, is not known"
    ));
    let events = builder.events().map_err(connect::usage)?;
    let exit = act(&events).await;
    events.flush().await;
    exit
}

/// Calls `act` with the events. Fails if the broker cannot be reached, because `act` may have to publish.
pub(super) async fn with_events_of_broker(
    common: &Common,
    topology: Topology,
    act: impl AsyncFnOnce(&Events) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let builder = connect::builder(common, topology, NAME)?;
    with_broker(connect_applied(builder).await.map_err(connect::usage)?, act).await
}

const NAME: &str = "topology events";

/// Connects to the broker. Fails if the topology was never applied there.
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

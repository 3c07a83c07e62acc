//! Opens the view of events, with a connection to the broker if the broker can be reached.

use std::time::Duration;

use hatchery::{ConnectError, Events, Topology};

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
    let builder = connect::builder(common, topology, "topology events")?;
    let away = match tokio::time::timeout(BROKER_LIMIT, connect::applied(builder.clone())).await {
        Ok(Ok(hatchery)) => {
            let exit = act(&hatchery.events()).await;
            hatchery.close().await;
            return exit;
        }
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

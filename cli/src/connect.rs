//! Builds a connection from the arguments.

use std::time::Duration;

use hatchery::{Builder, ConnectError, Events, Hatchery, Topology};
use hatchery_admin::{Admin, AdminError};

use crate::{
    args::{Common, UsageError},
    exit::{Ended, Exit},
};

/// How long an event waits for its version, also one that comes over the API. Longer than for a program that goes on publishing: on a busy
/// machine 250 ms were too short, and the event ran beside an older one of its reference.
const VERSION_WAIT: Duration = Duration::from_secs(2);

/// Connects under this name. The management UI shows it together with the host's name.
pub(crate) async fn connect(common: &Common, topology: Topology, name: &str) -> anyhow::Result<Hatchery> {
    builder(common, topology, name)?.connect().await.map_err(usage)
}

/// Returns the settings of the connection.
pub(crate) fn builder(common: &Common, topology: Topology, name: &str) -> anyhow::Result<Builder> {
    let builder = Hatchery::builder(topology).urls(common.amqp_url_text()?, common.redis_url()?);
    Ok(builder.tls(common.tls()?).name(here(name)).version_wait(VERSION_WAIT))
}

/// Connects to the broker. Fails if the topology was never applied there.
pub(crate) async fn applied(builder: Builder) -> Result<Hatchery, ConnectError> {
    let hatchery = builder.connect().await?;
    if let Err(error) = hatchery.require_topology().await {
        hatchery.close().await;
        return Err(error.into());
    }
    Ok(hatchery)
}

/// Calls `act` with the events. Fails if the broker cannot be reached, or the topology was never applied there.
pub(crate) async fn with_events(
    common: &Common,
    topology: Topology,
    name: &str,
    act: impl AsyncFnOnce(&Events) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let hatchery = applied(builder(common, topology, name)?).await.map_err(usage)?;
    let exit = act(&hatchery.events()).await;
    hatchery.close().await;
    exit
}

/// Returns the events as Redis knows them. Nothing connects to the broker.
pub(crate) fn events(common: &Common, topology: Topology, name: &str) -> anyhow::Result<Events> {
    builder(common, topology, name)?.events().map_err(usage)
}

/// Turns the error of an invalid URL into wrong usage; leaves other errors as they are.
pub(crate) fn usage(error: ConnectError) -> anyhow::Error {
    match error {
        ConnectError::Url(error) => UsageError(format!("--amqp-url (AMQP_URL): {error}")).into(),
        ConnectError::Register(error) => UsageError(format!("--redis-url (REDIS_URL): {error}")).into(),
        error => error.into(),
    }
}

/// Returns the connection's name together with the host's.
pub(crate) fn here(name: &str) -> String {
    format!("{name} @ {}", rustix::system::uname().nodename().to_string_lossy())
}

/// Returns the topology with the servers of these arguments, for the verbs that look at the broker or change it.
pub(crate) fn admin(common: &Common, topology: Topology, name: &str) -> anyhow::Result<Admin> {
    let is_redis_given = common.given_redis_url()?.is_some_and(|url| !url.secret().is_empty());
    let broker = common.amqp_url()?;
    let management = common.management_url(&broker)?;
    Admin::with(builder(common, topology, name)?, broker, management, is_redis_given).map_err(told)
}

/// Returns the error of a change with its exit code, and with the words of the command line.
pub(crate) fn told(error: AdminError) -> anyhow::Error {
    let (exit, message) = match error {
        AdminError::Unsafe(error) => return error.into(),
        AdminError::Connect(error) => return usage(error),
        AdminError::Management(error) => return error.into(),
        AdminError::Declare(error) => return error.into(),
        AdminError::ManagementUrl(error) => return error.into(),
        AdminError::Broker(error) => return error.into(),
        AdminError::Held(_) => {
            let advice = "Run it again, or wait longer with --lock-timeout; if none is running, look up the connection \
                          that owns that queue";
            (Exit::Locked, format!("{error}. {advice}"))
        }
        AdminError::TwoBrokers(_) => {
            let advice = "Set --management-url (RABBITMQ_MANAGEMENT_URL) to the management API of the broker of \
                          --amqp-url (AMQP_URL)";
            (Exit::Unreachable, format!("{error}. {advice}"))
        }
        AdminError::NoLock(_) => (Exit::Unreachable, format!("{error}. Check --amqp-url and --management-url")),
        AdminError::InUse(_) | AdminError::Blocked(_) | AdminError::ObjectsInUse(_) => {
            (Exit::Blocked, error.to_string())
        }
        AdminError::SwitchesHeld(_) => {
            (Exit::Locked, format!("{error}. Run it again, or wait longer with --lock-timeout"))
        }
        AdminError::UnknownName { .. } | AdminError::Past(_) => (Exit::Usage, error.to_string()),
        AdminError::Stale => (Exit::Locked, error.to_string()),
        AdminError::Partly { .. }
        | AdminError::PartlyRemoved { .. }
        | AdminError::Differs(_)
        | AdminError::Interrupted
        | AdminError::NotArmed(_)
        | AdminError::NotSwitched(_) => (Exit::Partly, error.to_string()),
        error => return error.into(),
    };
    Ended::new(exit, message).into()
}

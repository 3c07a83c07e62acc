//! Builds a connection from the arguments.

use hatchery::{Builder, ConnectError, Hatchery, Topology};

use crate::args::{Common, UsageError};

/// Connects under this name. The management UI shows it together with the host's name.
pub(crate) async fn connect(common: &Common, topology: Topology, name: &str) -> anyhow::Result<Hatchery> {
    builder(common, topology, name)?.connect().await.map_err(usage)
}

/// Returns the settings of the connection.
pub(crate) fn builder(common: &Common, topology: Topology, name: &str) -> anyhow::Result<Builder> {
    let builder = Hatchery::builder(topology).urls(common.amqp_url_text()?, common.redis_url()?);
    Ok(builder.tls(common.tls()?).name(here(name)))
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

//! From the arguments to a connection.

use hatchery::{Builder, ConnectError, Hatchery, Topology};

use crate::args::{Common, UsageError};

/// Connects under this name, which the management UI shows with the host's.
pub(crate) async fn connect(common: &Common, topology: Topology, name: &str) -> anyhow::Result<Hatchery> {
    builder(common, topology, name)?.connect().await.map_err(usage)
}

/// How to connect.
pub(crate) fn builder(common: &Common, topology: Topology, name: &str) -> anyhow::Result<Builder> {
    let (amqp, redis) = (common.amqp_url_text()?, common.redis_url()?);
    let builder = Hatchery::builder(topology).amqp_url(amqp.secret()).redis_url(redis.secret());
    Ok(builder.tls(common.tls()?).name(here(name)))
}

/// A URL that is none is wrong usage.
pub(crate) fn usage(error: ConnectError) -> anyhow::Error {
    match error {
        ConnectError::Url(error) => UsageError(format!("--amqp-url (AMQP_URL): {error}")).into(),
        ConnectError::Register(error) => UsageError(format!("--redis-url (REDIS_URL): {error}")).into(),
        error => error.into(),
    }
}

/// What it is called on this host.
pub(crate) fn here(name: &str) -> String {
    format!("{name} @ {}", rustix::system::uname().nodename().to_string_lossy())
}

//! From the arguments to a connection.

use hatchery::{ConnectError, Hatchery, Topology};

use super::args::{Common, UsageError};

/// Connects under this name, which the management UI shows with the host's.
pub(crate) async fn connect(common: &Common, topology: Topology, name: &str) -> anyhow::Result<Hatchery> {
    let connecting = Hatchery::builder(topology)
        .amqp_url(common.amqp_url_text()?)
        .redis_url(common.redis_url()?)
        .tls(common.tls()?)
        .name(here(name))
        .connect();
    connecting.await.map_err(|error| match error {
        ConnectError::Url(error) => UsageError(format!("--amqp-url (AMQP_URL): {error}")).into(),
        ConnectError::Register(error) => UsageError(format!("--redis-url (REDIS_URL): {error}")).into(),
        error => error.into(),
    })
}

/// What it is called on this host.
pub(crate) fn here(name: &str) -> String {
    format!("{name} @ {}", rustix::system::uname().nodename().to_string_lossy())
}

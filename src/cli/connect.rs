//! From the arguments to a connection.

use hatchery::{ConnectError, Hatchery, Topology};

use super::args::{Common, UsageError};

/// Connects under this name, which the management UI shows with the host's.
pub(crate) async fn connect(common: &Common, topology: Topology, name: &str) -> anyhow::Result<Hatchery> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name = format!("{name} @ {host}");
    hatchery::connect(topology, common.amqp_url_text(), common.redis_url(), &name).await.map_err(|error| match error {
        ConnectError::Url(error) => UsageError(format!("--amqp-url (AMQP_URL): {error}")).into(),
        ConnectError::Register(error) => UsageError(format!("--redis-url (REDIS_URL): {error}")).into(),
        error => error.into(),
    })
}

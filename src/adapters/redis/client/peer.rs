//! Connects to one address.

use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisError, RedisResult, aio::MultiplexedConnection,
    io::tcp::TcpSettings,
};

use crate::adapters::tls::{self, Tls};

/// One address, and how to connect to it.
pub(super) struct Peer {
    client: Client,
    /// The question to ask if the server closes a new connection at once; `None` without TLS.
    doubt: Option<&'static str>,
}

impl Peer {
    pub(super) fn new(info: ConnectionInfo, tls: &Tls) -> RedisResult<Self> {
        // Without it, a call waits for the answer to the one before on the same connection.
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let doubt = matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }).then(|| tls.doubt());
        let client = match tls.redis().filter(|_| doubt.is_some()) {
            Some(certificates) => Client::build_with_tls(info, certificates)?,
            None => Client::open(info)?,
        };
        Ok(Self { client, doubt })
    }

    pub(super) async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        // There are no limits here, because the callers have theirs.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config).await;
        connecting.map_err(|error| match self.doubt {
            Some(doubt) if error.is_connection_dropped() && tls::explain(&error).is_none() => {
                RedisError::from((ErrorKind::Io, "the connection was closed", doubt.to_owned()))
            }
            _ => error,
        })
    }
}

//! The connection: made on first use, dropped when it breaks, made again on the next use; no call waits longer than
//! it was told to. A connection that takes longer is finished for the next one.
//!
//! The crate's own `ConnectionManager` would keep a failed handshake for ever unless the socket itself failed (a
//! password that was wrong for a minute), and does not notice a peer that has silently gone.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue, IntoConnectionInfo,
    RedisError, ScriptInvocation, ServerErrorKind, aio::MultiplexedConnection,
};

use crate::{
    adapters::tls::{self, Tls},
    ports::RegisterError,
};

/// How long a connection may take to be made.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// One server and the connection to it, shared by all who call.
pub(super) struct Link {
    client: Client,
    /// Without the password: the only form in which the address leaves this module.
    url: String,
    /// What to ask where it closes a new connection at once.
    doubt: Option<&'static str>,
    /// Held by whoever connects, so that the others wait for the same connection.
    connecting: Arc<tokio::sync::Mutex<()>>,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    /// Counts connections, so that an old one's failure does not end a newer one.
    number: u64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn new(url: &str, tls: &Tls) -> Result<Self, RegisterError> {
        // What the crate says about a text that it cannot read may quote it.
        let info = url.into_connection_info().map_err(|_| RegisterError::Address)?;
        let url = masked(&info);
        let doubt = matches!(info.addr(), ConnectionAddr::TcpTls { .. }).then(|| tls.doubt());
        let client = match tls.redis().filter(|_| doubt.is_some()) {
            Some(certificates) => Client::build_with_tls(info, certificates),
            None => Client::open(info),
        };
        let client = client.map_err(|error| refused(&url, &error))?;
        Ok(Self { client, url, doubt, connecting: Arc::default(), current: Mutex::default() })
    }

    /// Calls a script, and loads it where the server does not know it. Repeats the call once if need be.
    pub(super) async fn call<T: FromRedisValue>(
        self: &Arc<Self>,
        script: &ScriptInvocation<'_>,
        limit: Duration,
    ) -> Result<T, RegisterError> {
        let mut used = None;
        let attempts = async {
            loop {
                let (mut connection, number, fresh) = self.connection().await?;
                used = Some((number, fresh));
                match script.invoke_async(&mut connection).await {
                    // An idle connection that the server has closed meanwhile is noticed only when it is used. Every
                    // call may be repeated, so that alone is no reason to fail.
                    Err(error) if error.is_connection_dropped() && !fresh => self.forget(number),
                    answer => return answer,
                }
            }
        };
        let answer = tokio::time::timeout(limit, attempts).await;
        let broken = match &answer {
            Ok(Ok(_)) => false,
            Ok(Err(error)) => !answered(error),
            // A peer that has silently gone looks like this, and the next call must not ask it again. But one that was
            // connected to in this very call may only be far away.
            Err(_) => used.is_some_and(|(_, fresh)| !fresh),
        };
        if let Some((number, _)) = used.filter(|_| broken) {
            self.forget(number);
        }
        match answer {
            Ok(answer) => answer.map_err(|error| self.error(&error)),
            Err(_) => Err(self.unreachable(format!("no answer within {limit:?}"))),
        }
    }

    /// The connection, its number, and whether it was made just now. Who stops waiting for it does not undo what the next one
    /// needs: a server may be farther away than one caller's limit.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<(MultiplexedConnection, u64, bool), RedisError> {
        if let Some((connection, number)) = self.established() {
            return Ok((connection, number, false));
        }
        let connecting = Arc::clone(&self.connecting).lock_owned().await;
        if let Some((connection, number)) = self.established() {
            return Ok((connection, number, false));
        }
        let link = Arc::clone(self);
        let connected = tokio::spawn(async move {
            let connected = tokio::time::timeout(CONNECT_LIMIT, link.connect()).await;
            drop(connecting);
            connected.unwrap_or_else(|_| Err(RedisError::from((ErrorKind::Io, "it does not let us connect"))))
        });
        let ended = |_| RedisError::from((ErrorKind::Io, "the runtime ends"));
        connected.await.map_err(ended)?
    }

    async fn connect(&self) -> Result<(MultiplexedConnection, u64, bool), RedisError> {
        // The limits are those around it.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connecting.map_err(|error| match self.doubt {
            Some(doubt) if error.is_connection_dropped() && tls::explain(&error).is_none() => {
                RedisError::from((ErrorKind::Io, "the connection was closed", doubt.to_owned()))
            }
            _ => error,
        })?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.number += 1;
        current.connection = Some(connection.clone());
        Ok((connection, current.number, true))
    }

    fn established(&self) -> Option<(MultiplexedConnection, u64)> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.connection.clone().map(|connection| (connection, current.number))
    }

    fn forget(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number == number {
            current.connection = None;
        }
    }

    /// An answer that is none.
    pub(super) fn unexpected(&self, reason: String) -> RegisterError {
        RegisterError::Refused { url: self.url.clone(), reason }
    }

    fn unreachable(&self, reason: String) -> RegisterError {
        RegisterError::Unreachable { url: self.url.clone(), reason }
    }

    fn error(&self, error: &RedisError) -> RegisterError {
        use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly, TryAgain};
        if let Some(reason) = tls::explain(error) {
            return self.unreachable(reason);
        }
        match error.kind() {
            // What it says instead may be pages of another protocol.
            ErrorKind::Parse => self.unreachable("it does not answer like Redis".to_owned()),
            ErrorKind::Io | ErrorKind::Server(BusyLoading | ClusterDown | MasterDown | ReadOnly | TryAgain) => {
                self.unreachable(error.to_string())
            }
            // A script of somebody else's runs for long.
            _ if error.code() == Some("BUSY") => self.unreachable(error.to_string()),
            _ => refused(&self.url, error),
        }
    }
}

/// Whether the server has answered, so that its connection is a good one. A server that has become a replica has
/// answered too, but asking again by the same connection would meet the same one.
fn answered(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(kind) => kind != ServerErrorKind::ReadOnly,
        ErrorKind::Extension | ErrorKind::UnexpectedReturnType => true,
        _ => false,
    }
}

fn refused(url: &str, error: &RedisError) -> RegisterError {
    RegisterError::Refused { url: url.to_owned(), reason: error.to_string() }
}

/// An address as people may see it. It is put together from its parts, so what is not named here cannot slip through.
fn masked(info: &ConnectionInfo) -> String {
    let scheme = match info.addr() {
        ConnectionAddr::TcpTls { .. } => "rediss",
        ConnectionAddr::Unix(_) => "unix",
        _ => "redis",
    };
    let redis = info.redis_settings();
    let secret = match (redis.username(), redis.password()) {
        (None, None) => String::new(),
        (user, None) => format!("{}@", user.unwrap_or_default()),
        (user, Some(_)) => format!("{}:***@", user.unwrap_or_default()),
    };
    format!("{scheme}://{secret}{}/{}", info.addr(), redis.db())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("redis://127.0.0.1", "redis://127.0.0.1:6379/0")]
    #[case("redis://:secret@redis.internal:7000/3", "redis://:***@redis.internal:7000/3")]
    #[case("rediss://hatchery:sec%2Fret@redis.internal", "rediss://hatchery:***@redis.internal:6379/0")]
    #[case("unix:///run/redis.sock?db=1&user=me&pass=secret", "unix://me:***@/run/redis.sock/1")]
    fn an_address_is_shown_without_its_password(#[case] url: &str, #[case] shown: &str) {
        let link = Link::new(url, &Tls::default()).expect("an address");
        assert_eq!(link.url, shown);
        assert!(!format!("{link:?}").contains("sec"));
    }

    #[test]
    fn who_is_not_redis_is_not_quoted() {
        let link = Link::new("redis://127.0.0.1", &Tls::default()).expect("an address");
        let error = RedisError::from((ErrorKind::Parse, "invalid response", "HTTP/1.1 400\r\n\r\n<html>".to_owned()));
        let said = link.error(&error).to_string();
        assert!(said.ends_with("it does not answer like Redis") && !said.contains('\n'), "{said}");
    }

    #[rstest]
    #[case("")]
    #[case("127.0.0.1:6379")]
    #[case("http://:secret@redis.internal")]
    #[case("redis://:secret@redis.internal/secret")]
    #[case("redis://:sec ret@redis.internal:port")]
    fn what_is_no_address_is_not_quoted(#[case] url: &str) {
        let error = Link::new(url, &Tls::default()).expect_err("no address");
        assert!(!format!("{error} {error:?}").contains("sec"), "{error:?}");
    }
}

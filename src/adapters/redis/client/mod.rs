//! The connection to Redis: a [`Server`] at a fixed address or one that [`Sentinels`] name, or the nodes of a
//! [`Cluster`].

mod address;
mod cluster;
mod eviction;
mod failure;
mod peer;
mod sentinel;
mod server;
mod slots;
mod turns;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{FromRedisValue, RedisResult, ScriptInvocation};
use tokio::time::Instant;

pub use self::eviction::ServerInfo;
pub(super) use self::slots::slot;
use self::{
    address::Address,
    cluster::Cluster,
    failure::Failure,
    sentinel::Sentinels,
    server::{Discovery, Server},
};
use crate::{
    adapters::{secret_url::UrlText, tls::Tls},
    ports::RegisterError,
};

/// The connection to Redis, shared by all callers.
pub(super) struct RedisClient {
    tls: Tls,
    current: Mutex<Arc<Current>>,
    /// When the log last named a key of the index with a value that the register did not write.
    damage_logged: Mutex<Option<Instant>>,
}

/// The servers that the URL names. A URL from a file is read again after a failure, because passwords are rotated that way.
struct Current {
    text: UrlText,
    topology: Topology,
    /// Without the password: the only form in which the address leaves this module.
    url: String,
}

/// The time limit of a call, and the deadline that follows from it.
#[derive(Clone, Copy)]
pub(super) struct Within {
    limit: Duration,
    deadline: Instant,
}

impl From<Duration> for Within {
    fn from(limit: Duration) -> Self {
        Self { limit, deadline: Instant::now() + limit }
    }
}

enum Topology {
    Server(Arc<Server>),
    Cluster(Box<Cluster>),
}

impl fmt::Debug for RedisClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisClient").field("url", &self.url()).finish_non_exhaustive()
    }
}

impl RedisClient {
    pub(super) fn new(text: UrlText, tls: &Tls) -> Result<Self, RegisterError> {
        let current = Arc::new(Current::new(text, tls)?);
        Ok(Self { tls: tls.clone(), current: Mutex::new(current), damage_logged: Mutex::default() })
    }

    /// Returns the URL without the password.
    pub(super) fn url(&self) -> String {
        self.current().url.clone()
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the URL again from its file after this failure. Returns whether it is another one than the call has used.
    ///
    /// # Errors
    /// When the file cannot be used. The URL stays as it was. The message has no password.
    fn read_again(&self, used: &Arc<Current>, failure: &Failure) -> Result<bool, String> {
        if !failure.breaks_off() {
            return Ok(false);
        }
        if Arc::ptr_eq(used, &self.current()) {
            // Read without the lock: a file may be on a disk that hangs.
            let Some(text) = used.text.changed().map_err(|error| error.to_string())? else { return Ok(false) };
            let read = Arc::new(Current::new(text, &self.tls).map_err(|error| error.to_string())?);
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            // Another call may have read it meanwhile.
            if Arc::ptr_eq(used, &current) {
                *current = read;
            }
        }
        Ok(true)
    }

    /// Starts to connect, so that the first call need not wait for the connection. Must be called within a tokio
    /// runtime.
    pub(super) fn connect_soon(self: &Arc<Self>) {
        let client = Arc::clone(self);
        // An error is dropped here: the first call meets it again.
        tokio::spawn(async move {
            match &client.current().topology {
                Topology::Server(server) => drop(server.connection().await),
                Topology::Cluster(cluster) => drop(cluster.master(0, Instant::now() + CONNECT_SOON).await),
            }
        });
    }

    /// Calls a script about keys of one hash slot, and loads it if the server does not have it. May repeat the call.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
        slot: u16,
        within: Within,
    ) -> Result<T, RegisterError> {
        let deadline = within.deadline;
        loop {
            let current = self.current();
            let answer = match &current.topology {
                Topology::Server(server) => {
                    let by = |mut connection| async move { script.invoke_async(&mut connection).await };
                    server.ask(deadline, by).await
                }
                Topology::Cluster(cluster) => cluster.call(script, slot, deadline).await,
            };
            let failure = match answer {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match self.read_again(&current, &failure) {
                Ok(true) => {}
                read => return Err(self.error(&failure, within.limit, read.err())),
            }
        }
    }

    /// Returns what the server says of itself. Nothing for a Cluster, in which each server would have to be asked.
    ///
    /// # Errors
    /// When the server does not answer `INFO`, or does not allow it.
    pub(super) async fn server_info(&self, within: Within) -> Result<ServerInfo, RegisterError> {
        let current = self.current();
        let Topology::Server(server) = &current.topology else { return Ok(ServerInfo::default()) };
        let info = |mut connection| async move { redis::cmd("INFO").query_async::<String>(&mut connection).await };
        let info = server.ask(within.deadline, info).await;
        info.map(|info| ServerInfo::read(&info)).map_err(|failure| self.error(&failure, within.limit, None))
    }

    /// Logs that keys which this client has written are gone.
    pub(super) fn log_emptied(&self) {
        let url = self.url();
        tracing::warn!(
            "Redis at {url} was emptied: all events in the queues run, also those that were replaced or cancelled"
        );
    }

    /// Logs that a call has met a key of the index that it could not use, now and then while calls meet one. No call fails because of such
    /// a key, so only the log reports it.
    pub(super) fn log_damaged(&self, key: &str) {
        if !self.is_damage_due() {
            return;
        }
        let url = self.url();
        tracing::warn!(
            "Redis at {url} has a key of the index that cannot be read: {key}; events are handled as usual, but lists \
             and kept payloads are incomplete until the key is deleted"
        );
    }

    /// Whether this caller, and no other one, is to log a damaged key now.
    fn is_damage_due(&self) -> bool {
        let mut logged = self.damage_logged.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = logged.is_none_or(|logged| logged.elapsed() >= DAMAGE_PAUSE);
        if is_due {
            *logged = Some(Instant::now());
        }
        is_due
    }

    /// Returns the error for an answer that makes no sense.
    pub(super) fn unexpected(&self, reason: String) -> RegisterError {
        RegisterError::Refused { url: self.url(), reason }
    }

    fn error(&self, failure: &Failure, limit: Duration, unread: Option<String>) -> RegisterError {
        let url = self.url();
        if let Some((by, here)) = failure.taken() {
            return RegisterError::InUse { url, by, here };
        }
        let (trouble, reason) = failure.explain(limit);
        let reason = match unread {
            Some(why) => format!("{reason}; the file of the URL cannot be used: {why}"),
            None => reason,
        };
        match trouble {
            Some(trouble) => RegisterError::Unreachable { url, trouble, reason },
            None if failure.is_unreadable() => RegisterError::Unreadable { url, reason },
            None => RegisterError::Refused { url, reason },
        }
    }
}

impl Current {
    fn new(text: UrlText, tls: &Tls) -> Result<Self, RegisterError> {
        let address = Address::parse(text.secret()).map_err(RegisterError::Address)?;
        let url = address.masked();
        let topology = topology(address, tls, &url);
        let topology =
            topology.map_err(|error| RegisterError::Refused { url: url.clone(), reason: error.to_string() })?;
        Ok(Self { text, topology, url })
    }
}

fn topology(address: Address, tls: &Tls, shown: &str) -> RedisResult<Topology> {
    let server = |place| Topology::Server(Server::new(place, shown));
    Ok(match address {
        Address::Server(info) => server(Discovery::At(*info, tls.clone())),
        Address::Sentinel { sentinels, own, master, access } => {
            server(Discovery::Watched(Sentinels::new(&sentinels, &own, master, access, tls.clone())?))
        }
        Address::Cluster { nodes, access } => Topology::Cluster(Box::new(Cluster::new(nodes, access, tls.clone())?)),
    })
}

/// How long [`RedisClient::connect_soon`] may look for a master in a cluster.
const CONNECT_SOON: Duration = Duration::from_secs(5);
/// How long until the log names a damaged key again.
const DAMAGE_PAUSE: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_about_a_client_has_its_password() {
        let url = "redis-sentinel://app:secret@s1/0?sentinel_password=secret#m";
        let client = RedisClient::new(url.into(), &Tls::default()).expect("an address");
        assert!(!format!("{client:?}").contains("secret"), "{client:?}");
        let error = RedisClient::new("redis-cluster://:secret@".into(), &Tls::default()).expect_err("no address");
        assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_damaged_key_is_logged_once_a_minute() {
        let client = RedisClient::new("redis://localhost".into(), &Tls::default()).expect("an address");
        assert!(client.is_damage_due() && !client.is_damage_due());
        tokio::time::advance(DAMAGE_PAUSE / 2).await;
        assert!(!client.is_damage_due());
        tokio::time::advance(DAMAGE_PAUSE / 2).await;
        assert!(client.is_damage_due() && !client.is_damage_due());
    }
}

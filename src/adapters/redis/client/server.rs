//! One server and the connection to it. The connection is opened on first use, dropped when it breaks, and opened again
//! on the next use. No call waits beyond its deadline: a connection that takes longer to open goes on for the next
//! call.
//!
//! The redis crate's own `ConnectionManager` would keep a failed handshake for ever unless the socket itself failed (a
//! password that was wrong for a minute), and does not notice a peer that has silently gone.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{ConnectionInfo, ErrorKind, RedisError, RedisResult, ServerErrorKind, aio::MultiplexedConnection};
use tokio::time::Instant;

use super::{address::Host, eviction::Eviction, failure::Failure, peer::Peer, sentinel::Sentinels};
use crate::adapters::tls::Tls;

/// How long a connection may take to open.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long the answer of the sentinels counts. A master that they have replaced may still be reachable, and consider
/// itself the master.
const WORD: Duration = Duration::from_secs(5);

/// How a server is found.
pub(super) enum Discovery {
    /// At a fixed address.
    At(ConnectionInfo, Tls),
    /// As the master that the sentinels name.
    Watched(Sentinels),
}

/// One server and the connection to it, shared by all callers.
pub(super) struct Server {
    discovery: Discovery,
    eviction: Eviction,
    /// Held by the caller that connects, so that other callers wait for the same connection.
    connecting: Arc<tokio::sync::Mutex<()>>,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    /// Counts the connections, so that the failure of an old one does not end a newer one.
    number: u64,
    /// The master that the sentinels have named.
    named: Option<Host>,
    /// Until when the answer of the sentinels counts.
    counts: Option<Instant>,
}

impl Server {
    pub(super) fn new(discovery: Discovery, shown: &str) -> Arc<Self> {
        let eviction = Eviction::new(shown);
        Arc::new(Self { discovery, eviction, connecting: Arc::default(), current: Mutex::default() })
    }

    /// Asks a question, and connects first if there is no connection. Asks again on a new connection if the old one
    /// turns out to have ended.
    pub(super) async fn ask<T, F>(
        self: &Arc<Self>,
        deadline: Instant,
        question: impl Fn(MultiplexedConnection) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let mut used = None;
        let attempts = async {
            loop {
                let (connection, number, fresh) = self.connection().await?;
                used = Some((number, fresh));
                match question(connection).await {
                    // An idle connection that the server has closed meanwhile is noticed only when it is used. Every
                    // call may be repeated, so that alone is no reason to fail.
                    Err(error) if error.is_connection_dropped() && !fresh => self.forget(number),
                    // The redis crate loads a script that the server does not have, and calls it once more. All scripts may
                    // be flushed in between.
                    Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {}
                    answer => return answer.map_err(Failure::Redis),
                }
            }
        };
        let answer = tokio::time::timeout_at(deadline, attempts).await;
        let broken = match &answer {
            Ok(Ok(_)) => false,
            Ok(Err(failure)) => failure.breaks_off(),
            // A peer that has silently gone shows only by a timeout, and the next call must not use it again. But a
            // peer that this very call has connected to may only be far away.
            Err(_) => used.is_some_and(|(_, fresh)| !fresh),
        };
        if let Some((number, _)) = used.filter(|_| broken) {
            self.forget(number);
        }
        answer.unwrap_or(Err(Failure::Late { connected: used.is_some() }))
    }

    /// Returns the connection, its number, and whether it was opened just now. If the caller stops waiting, the
    /// connection is still opened for the next one: a server may be farther away than one caller's limit.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<(MultiplexedConnection, u64, bool), Failure> {
        if let Some((connection, number)) = self.established() {
            return Ok((connection, number, false));
        }
        let connecting = Arc::clone(&self.connecting).lock_owned().await;
        if let Some((connection, number)) = self.established() {
            return Ok((connection, number, false));
        }
        let server = Arc::clone(self);
        let connected = tokio::spawn(async move {
            let connected = tokio::time::timeout(CONNECT_LIMIT, server.connect()).await;
            drop(connecting);
            let silent = RedisError::from((ErrorKind::Io, "the connection was not established in time"));
            connected.unwrap_or_else(|_| Err(silent.into()))
        });
        connected.await.unwrap_or_else(|_| Err(RedisError::from((ErrorKind::Io, "the tokio runtime ends")).into()))
    }

    async fn connect(&self) -> Result<(MultiplexedConnection, u64, bool), Failure> {
        let (connection, named) = match &self.discovery {
            // Made anew, because the files of TLS may have changed.
            Discovery::At(info, tls) => (Peer::new(info.clone(), tls)?.connect().await?, None),
            Discovery::Watched(sentinels) => {
                let (connection, master) = sentinels.master().await?;
                (connection, Some(master))
            }
        };
        self.eviction.look(&connection);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.number += 1;
        current.connection = Some(connection.clone());
        current.counts = named.is_some().then(|| Instant::now() + WORD);
        current.named = named;
        Ok((connection, current.number, true))
    }

    fn established(self: &Arc<Self>) -> Option<(MultiplexedConnection, u64)> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = current.connection.clone()?;
        if current.counts.is_some_and(|until| until <= Instant::now()) {
            current.counts = Some(Instant::now() + WORD);
            tokio::spawn(Arc::clone(self).look_again(current.number, current.named.clone()));
        }
        Some((connection, current.number))
    }

    /// Asks the sentinels again, and drops the connection if they have replaced the master.
    async fn look_again(self: Arc<Self>, number: u64, named: Option<Host>) {
        let Discovery::Watched(sentinels) = &self.discovery else { return };
        let now = tokio::time::timeout(CONNECT_LIMIT, sentinels.name()).await;
        if let Ok(Ok(now)) = now
            && named.is_some_and(|named| named != now)
        {
            self.forget(number);
        }
    }

    fn forget(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number == number {
            current.connection = None;
        }
    }
}

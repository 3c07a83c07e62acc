//! One server and the connection to it: made on first use, dropped when it breaks, made again on the next use; no call
//! waits longer than it was told to. A connection that takes longer is finished for the next one.
//!
//! The crate's own `ConnectionManager` would keep a failed handshake for ever unless the socket itself failed (a
//! password that was wrong for a minute), and does not notice a peer that has silently gone.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{ErrorKind, RedisError, RedisResult, aio::MultiplexedConnection};
use tokio::time::Instant;

use super::{address::Host, eviction::Eviction, failure::Failure, peer::Peer, sentinel::Sentinels};

/// How long a connection may take to be made.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How long the word of the sentinels counts. A master that they have replaced may still be reached, and believe in itself.
const WORD: Duration = Duration::from_secs(5);

/// Which server it is.
pub(super) enum Place {
    /// Always the same.
    At(Peer),
    /// Whom the sentinels name.
    Watched(Sentinels),
}

/// One server and the connection to it, shared by all who call.
pub(super) struct Server {
    place: Place,
    eviction: Eviction,
    /// Held by whoever connects, so that the others wait for the same connection.
    connecting: Arc<tokio::sync::Mutex<()>>,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    /// Counts connections, so that an old one's failure does not end a newer one.
    number: u64,
    /// Whom the sentinels have named.
    named: Option<Host>,
    /// Until then their word counts.
    counts: Option<Instant>,
}

impl Server {
    pub(super) fn new(place: Place, shown: &str) -> Arc<Self> {
        let eviction = Eviction::new(shown);
        Arc::new(Self { place, eviction, connecting: Arc::default(), current: Mutex::default() })
    }

    /// Asks, and connects where there is no connection. Asks once more where the connection has ended meanwhile.
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
                    answer => return answer.map_err(Failure::Redis),
                }
            }
        };
        let answer = tokio::time::timeout_at(deadline, attempts).await;
        let broken = match &answer {
            Ok(Ok(_)) => false,
            Ok(Err(failure)) => failure.breaks_off(),
            // A peer that has silently gone looks like this, and the next call must not ask it again. But one that was
            // connected to in this very call may only be far away.
            Err(_) => used.is_some_and(|(_, fresh)| !fresh),
        };
        if let Some((number, _)) = used.filter(|_| broken) {
            self.forget(number);
        }
        answer.unwrap_or(Err(Failure::Late { connected: used.is_some() }))
    }

    /// The connection, its number, and whether it was made just now. Who stops waiting for it does not undo what the next one
    /// needs: a server may be farther away than one caller's limit.
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
            let silent = RedisError::from((ErrorKind::Io, "it does not let us connect"));
            connected.unwrap_or_else(|_| Err(silent.into()))
        });
        connected.await.unwrap_or_else(|_| Err(RedisError::from((ErrorKind::Io, "the runtime ends")).into()))
    }

    async fn connect(&self) -> Result<(MultiplexedConnection, u64, bool), Failure> {
        let (connection, named) = match &self.place {
            Place::At(peer) => (peer.connect().await?, None),
            Place::Watched(sentinels) => {
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

    /// Leaves a master that the sentinels have replaced.
    async fn look_again(self: Arc<Self>, number: u64, named: Option<Host>) {
        let Place::Watched(sentinels) = &self.place else { return };
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

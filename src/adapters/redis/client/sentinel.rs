//! Finds the master that the sentinels name, and connects to it.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use redis::{ConnectionInfo, FromRedisValue as _, RedisResult, Value, aio::MultiplexedConnection, cmd};

use super::{
    address::{Access, Host, show},
    failure::{Failure, is_away},
    peer::Peer,
    turns::first_answer,
};
use crate::adapters::tls::Tls;

/// How long a server that is named as the master may take to confirm its role.
const MASTER_LIMIT: Duration = Duration::from_secs(2);

/// The sentinels of one master.
pub(super) struct Sentinels {
    hosts: Vec<(Host, ConnectionInfo)>,
    master: String,
    access: Access,
    tls: Tls,
    /// The sentinel that is asked first: the one that was right the last time.
    first: AtomicUsize,
}

impl Sentinels {
    pub(super) fn new(hosts: &[Host], own: &Access, master: String, access: Access, tls: Tls) -> RedisResult<Self> {
        let hosts = hosts.iter().map(|host| Ok((host.clone(), own.to(host)?))).collect::<RedisResult<_>>()?;
        Ok(Self { hosts, master, access, tls, first: AtomicUsize::new(0) })
    }

    /// Connects to the master. Returns the connection and the master's host. The server itself must say that it is a
    /// master.
    pub(super) async fn master(&self) -> Result<(MultiplexedConnection, Host), Failure> {
        let questions = self.turn().map(|n| async move {
            let host = self.named_by(n).await?;
            let connected = tokio::time::timeout(MASTER_LIMIT, self.connect_to(&host)).await;
            let failed = |why: &str| {
                Failure::FailingOver(format!("the sentinels name {} as the master, and {why}", show(&host)))
            };
            match connected {
                Ok(Ok((connection, true))) => {
                    self.first.store(n, Ordering::Relaxed);
                    Ok((connection, host))
                }
                Ok(Ok((_, false))) => Err(failed("it is a replica")),
                Ok(Err(error)) if is_away(&error) => Err(failed(&format!("it is away: {error}"))),
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err(failed("it does not answer")),
            }
        });
        first_answer(questions).await.map_err(Failure::most_telling)
    }

    /// Returns the master's host according to the first sentinel that answers.
    pub(super) async fn name(&self) -> Result<Host, Failure> {
        first_answer(self.turn().map(|n| self.named_by(n))).await.map_err(Failure::most_telling)
    }

    fn turn(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.first.load(Ordering::Relaxed), self.hosts.len());
        (0..count).map(move |n| (first + n) % count)
    }

    async fn named_by(&self, n: usize) -> Result<Host, Failure> {
        let (_, sentinel) = &self.hosts[n];
        let mut connection = Peer::new(sentinel.clone(), &self.tls)?.connect().await?;
        let question = cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master).to_owned();
        let named: Option<(String, u16)> = question.query_async(&mut connection).await?;
        named.ok_or(Failure::NoMaster)
    }

    /// Connects to a server. Returns the connection, and whether the server says that it is a master.
    async fn connect_to(&self, host: &Host) -> RedisResult<(MultiplexedConnection, bool)> {
        let mut connection = Peer::new(self.access.to(host)?, &self.tls)?.connect().await?;
        let role: Vec<Value> = cmd("ROLE").query_async(&mut connection).await?;
        let role = role.into_iter().next().map(String::from_redis_value).transpose()?;
        Ok((connection, role.as_deref() == Some("master")))
    }
}

//! A Redis Cluster: sends each call to the master of its shard's hash slot.
//!
//! This module does not use the redis crate's own cluster client: while one master hangs, that client serves few calls to
//! the others (`docs/decisions.md`). All keys of a call are in one slot, so this module need only know the master of each
//! slot, and follow redirections.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{
    Cmd, FromRedisValue, Pipeline, RedisFuture, RedisResult, ScriptInvocation, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cmd,
};
use tokio::time::Instant;

use super::{
    address::{Access, Host, show},
    failure::{Elsewhere, Failure, is_away},
    server::{Discovery, Server},
    slots::{Slots, redirected},
    turns::first_answer,
};
use crate::adapters::tls::Tls;

/// The pause between two tries of a call whose slot is moving between two nodes.
const PAUSE: Duration = Duration::from_millis(20);

/// The number of redirections that a call follows without a pause.
const HOPS: u32 = 3;

/// The nodes of a cluster.
pub(super) struct Cluster {
    seeds: Vec<Host>,
    access: Access,
    tls: Tls,
    view: Mutex<ClusterView>,
    /// Held by the caller that asks for the masters of the slots, so that other callers wait for the same answer.
    learning: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct ClusterView {
    servers: BTreeMap<Host, Arc<Server>>,
    slots: Slots,
    /// Counts the answers about slots, so that a caller that doubts an old one does not doubt a newer one.
    number: u64,
    /// Whether there is no answer about slots yet, or it has proved wrong.
    is_doubted: bool,
    /// The node that is asked first: another one each time, because some may not know a change yet.
    turn: usize,
}

impl ClusterView {
    fn master(&self, slot: u16) -> Result<(Host, u64), Failure> {
        let none = || Failure::FailingOver(format!("no node of the cluster serves the hash slot {slot}"));
        Ok((self.slots.master(slot).cloned().ok_or_else(none)?, self.number))
    }
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Host>, access: Access, tls: Tls) -> RedisResult<Self> {
        let view = Mutex::new(ClusterView { is_doubted: true, ..ClusterView::default() });
        let cluster = Self { seeds, access, tls, view, learning: tokio::sync::Mutex::default() };
        for seed in &cluster.seeds {
            cluster.server(seed)?;
        }
        Ok(cluster)
    }

    /// Calls a script about keys of this slot, and follows redirections until the deadline.
    pub(super) async fn call<T: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
        slot: u16,
        deadline: Instant,
    ) -> Result<T, Failure> {
        let (mut host, mut number) = self.master(slot, deadline).await?;
        let (mut asking, mut hops, mut on_its_way) = (false, 0_u32, None);
        loop {
            let server = self.server(&host)?;
            let by = |connection| async move { script.invoke_async(&mut Sent { connection, asking }).await };
            let failure = match server.ask(deadline, by).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let elsewhere = failure.elsewhere();
            on_its_way = elsewhere.is_some().then(|| failure.on_its_way(slot)).or(on_its_way);
            hops += 1;
            if hops > HOPS || matches!(elsewhere, Some(Elsewhere::Later)) {
                tokio::time::sleep_until(deadline.min(Instant::now() + PAUSE)).await;
            }
            if Instant::now() >= deadline {
                self.doubt(number);
                return Err(on_its_way.unwrap_or(failure));
            }
            asking = false;
            match elsewhere {
                Some(Elsewhere::Moved(to)) => {
                    self.doubt(number);
                    host = redirected(&to, &host.0).ok_or(failure)?;
                }
                Some(Elsewhere::Ask(to)) => {
                    host = redirected(&to, &host.0).ok_or(failure)?;
                    asking = true;
                }
                Some(Elsewhere::Later) => (host, number) = self.master(slot, deadline).await?,
                None if failure.is_of_this_server() => {
                    self.doubt(number);
                    // If another node still answers, only this master is gone, and not all of Redis.
                    let (now, known) = self.master(slot, deadline).await.map_err(|_| failure.clone())?;
                    if now == host {
                        self.doubt(known);
                        return Err(gone(&host, failure));
                    }
                    (host, number) = (now, known);
                }
                None => return Err(failure),
            }
        }
    }

    /// Returns the master of a slot, and the number of the answer that names it.
    pub(super) async fn master(&self, slot: u16, deadline: Instant) -> Result<(Host, u64), Failure> {
        let before = {
            let view = self.view();
            match view.master(slot) {
                Ok(master) if !view.is_doubted => return Ok(master),
                // A master that the answer does not name may exist by now.
                _ => view.number,
            }
        };
        let late = |_| Failure::Late { connected: false };
        let _learning = tokio::time::timeout_at(deadline, self.learning.lock()).await.map_err(late)?;
        if self.view().number == before {
            self.learn(deadline).await?;
        }
        self.view().master(slot)
    }

    /// Asks the nodes for the masters of all slots.
    async fn learn(&self, deadline: Instant) -> Result<(), Failure> {
        let questions = self.turn().into_iter().map(|(host, server)| async move {
            let question = |mut connection: MultiplexedConnection| async move {
                cmd("CLUSTER").arg("SLOTS").query_async::<Vec<Vec<Value>>>(&mut connection).await
            };
            let answer = server.ask(deadline, question).await?;
            let slots = Slots::read(answer, &host.0).map_err(|error| Failure::Redis(error.into()))?;
            // A node that was reset, or has lost its file, knows no other node. Those may answer all the same.
            let lost = || Failure::FailingOver(format!("{} knows of no node that serves hash slots", show(&host)));
            if slots.are_served() { Ok(slots) } else { Err(lost()) }
        });
        let slots = first_answer(questions).await.map_err(Failure::most_telling)?;
        // Replicas are added too: a replica may be the only node that is left.
        for node in &slots.nodes {
            self.server(node)?;
        }
        let mut view = self.view();
        let listed = |host: &Host| slots.nodes.contains(host) || self.seeds.contains(host);
        view.servers.retain(|host, _| listed(host));
        view.slots = slots;
        view.number += 1;
        view.is_doubted = false;
        Ok(())
    }

    /// Returns all nodes, starting with another one each time.
    fn turn(&self) -> Vec<(Host, Arc<Server>)> {
        let mut view = self.view();
        let mut servers: Vec<_> =
            view.servers.iter().map(|(host, server)| (host.clone(), Arc::clone(server))).collect();
        view.turn += 1;
        let first = view.turn % servers.len().max(1);
        servers.rotate_left(first);
        servers
    }

    fn server(&self, host: &Host) -> RedisResult<Arc<Server>> {
        if let Some(server) = self.view().servers.get(host) {
            return Ok(Arc::clone(server));
        }
        let server = Server::new(Discovery::At(self.access.to(host)?, self.tls.clone()), &show(host));
        Ok(Arc::clone(self.view().servers.entry(host.clone()).or_insert(server)))
    }

    fn doubt(&self, number: u64) {
        let mut view = self.view();
        if view.number == number {
            view.is_doubted = true;
        }
    }

    fn view(&self) -> std::sync::MutexGuard<'_, ClusterView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the failure of a master that is gone while other nodes answer: a fail-over has to name another master,
/// unless this one comes back.
fn gone(host: &Host, failure: Failure) -> Failure {
    match &failure {
        Failure::Redis(error) if is_away(error) => {
            Failure::FailingOver(format!("the master {} is away: {error}", show(host)))
        }
        _ => failure,
    }
}

/// A connection to a node. If `asking`, it sends `ASKING` before each command: a node that is about to get a slot
/// serves it only to clients that do so.
struct Sent {
    connection: MultiplexedConnection,
    asking: bool,
}

impl ConnectionLike for Sent {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        if !self.asking {
            return self.connection.req_packed_command(command);
        }
        Box::pin(async move {
            let mut both = redis::pipe();
            both.cmd("ASKING").add_command(command.clone());
            // A pipeline of the redis crate would make one error of both answers, without the node's own error.
            let answers = self.connection.req_packed_commands(&both, 0, 2).await?;
            let is_error = |answer: &Value| matches!(answer, Value::ServerError(_));
            let told = answers.into_iter().reduce(|first, second| if is_error(&first) { first } else { second });
            Ok(told.unwrap_or(Value::Nil))
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

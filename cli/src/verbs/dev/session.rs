//! The topology in memory, with its server and its worker, from one change of the file to the next.

use std::{collections::BTreeSet, net::TcpListener, sync::Arc, time::Duration};

use anyhow::Context as _;
use hatchery::{
    CancellationToken, EventType, Handler, Summary, Topology, Word, WorkError, internals::compile::compile,
};
use hatchery_admin::{AppliedInMemory, Backend as _, InMemoryAdmin};
use hatchery_serve::{Entrance, serve};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use super::{account::Account, changes};
use crate::{drawing::draw, output::Output};

/// The handler, and how it is called.
pub(super) struct Handled {
    pub(super) handler: Arc<dyn Handler>,
    /// Empty for all types of the file.
    pub(super) types: Vec<String>,
    pub(super) concurrency: Option<u16>,
    pub(super) drain_timeout: Option<Duration>,
}

/// `topology dev` at work.
pub(super) struct Dev {
    admin: Arc<InMemoryAdmin>,
    handled: Option<Handled>,
    /// Each topology has a server of its own on a copy of this listener.
    listener: TcpListener,
    running: Running,
    /// Servers of former topologies that may still answer a request.
    former: Vec<JoinHandle<()>>,
    account: Account,
    /// Every type that the file has had.
    types: BTreeSet<EventType>,
    output: Output,
}

/// The server and the worker of one topology.
struct Running {
    stop: CancellationToken,
    serving: JoinHandle<()>,
    /// `None` without a handler.
    working: Option<AbortOnDropHandle<Result<Summary, WorkError>>>,
}

impl Dev {
    pub(super) async fn start(
        topology: Topology,
        listener: tokio::net::TcpListener,
        handled: Option<Handled>,
        output: Output,
    ) -> anyhow::Result<Self> {
        let admin = Arc::new(InMemoryAdmin::new(topology)?);
        let listener = listener.into_std()?;
        admin.arm().await?;
        let running = Running::start(&admin, &listener, handled.as_ref())?;
        let types = admin.0.topology.types.keys().cloned().collect();
        let (former, account) = (Vec::new(), Account::default());
        Ok(Self { admin, handled, listener, running, former, account, types, output })
    }

    /// Says what this is.
    pub(super) fn introduce(&self) -> anyhow::Result<()> {
        let topology = &self.admin.0.topology;
        let worked_on = self.handled.as_ref().map(|handled| worked_on(handled, topology)).unwrap_or_default();
        let is_waiting = |name: &&str| !worked_on.contains(name);
        let waiting: Vec<&str> = topology.types.keys().map(Word::as_str).filter(is_waiting).collect();
        let address = self.listener.local_addr()?;
        let mut text = format!(
            "{} in memory, without RabbitMQ and Redis. At the end everything is forgotten.\n\
             The API for this machine: http://{address}/v1/events; a page to look at: http://{address}/\n",
            topology.name,
        );
        let lists = [("Handled", worked_on), ("No handler, events wait", waiting)];
        for (what, types) in lists.into_iter().filter(|(_, types)| !types.is_empty()) {
            text.extend([what, ": ", &types.join(", "), "\n"]);
        }
        text += "A change of the file is taken over. Ctrl-C ends.\n";
        Ok(self.output.print(&text)?)
    }

    /// Takes over another text of the file. One with a mistake changes nothing.
    pub(super) async fn change(&mut self, name: &str, text: &str) -> anyhow::Result<()> {
        let topology = match hatchery::file::read(text, name) {
            Ok(topology) => topology,
            Err(error) => {
                self.output.note(draw(&error, self.output.colors_errors(), Output::error_columns()).trim_end());
                self.keep(&format!("{name} is not valid"));
                return Ok(());
            }
        };
        if let Err(error) = compile(&topology) {
            self.keep(&error.to_string());
            return Ok(());
        }
        let before = Arc::clone(&self.admin.0.topology);
        if topology.name != before.name {
            self.keep(&format!(
                "the topology's name is `{}` now; end `topology dev`, and start it again",
                topology.name
            ));
            return Ok(());
        }
        // A worker reads its topology once. The next one begins when this one has finished what runs.
        self.end_running().await?;
        self.types.extend(topology.types.keys().cloned());
        self.admin = Arc::new(self.admin.changed(topology)?);
        let AppliedInMemory { schedules, pauses } = self.admin.arm().await?;
        self.running = Running::start(&self.admin, &self.listener, self.handled.as_ref())?;
        let waiting = |name: &_| self.admin.waiting(name);
        let lines = changes::lines(&before, &self.admin.0.topology, waiting) + &changes::armed(schedules, &pauses);
        self.output.print(&format!("{name} has changed, and is taken over.\n{lines}"))?;
        Ok(())
    }

    /// Says why the file is not taken over.
    pub(super) fn keep(&self, why: &str) {
        self.output.warn(&format!("{why}; the topology stays as it was"));
    }

    /// Returns when the worker ends by itself, which is an error; never without a worker.
    pub(super) async fn worker_ended(&mut self) -> anyhow::Result<()> {
        match &mut self.running.working {
            None => std::future::pending().await,
            Some(working) => {
                let ended = working.await.context("the worker has panicked");
                self.running.working = None;
                self.account.add(ended??);
                anyhow::bail!("the worker has ended")
            }
        }
    }

    /// Ends, and prints the account.
    pub(super) async fn end(&mut self) -> anyhow::Result<()> {
        self.end_running().await?;
        for serving in self.former.drain(..) {
            serving.await.context("the server has panicked")?;
        }
        let left = self.types.iter().filter(|name| !self.admin.0.topology.types.contains_key(name.as_str()));
        self.account.left = left.map(|name| self.admin.waiting(name) as u64).sum();
        let text = self.account.text(&self.admin.status().await?, |name| self.admin.waiting(name));
        Ok(self.output.print(&text)?)
    }

    /// Stops the server and the worker, and waits until the worker has finished what runs.
    async fn end_running(&mut self) -> anyhow::Result<()> {
        self.running.stop.cancel();
        if let Some(working) = self.running.working.take() {
            self.account.add(working.await.context("the worker has panicked")??);
        }
        self.account.published += self.admin.0.published();
        let none = tokio::spawn(std::future::ready(()));
        self.former.retain(|serving| !serving.is_finished());
        self.former.push(std::mem::replace(&mut self.running.serving, none));
        Ok(())
    }
}

impl Running {
    fn start(admin: &Arc<InMemoryAdmin>, listener: &TcpListener, handled: Option<&Handled>) -> anyhow::Result<Self> {
        let stop = CancellationToken::new();
        let entrance = Entrance::new(tokio::net::TcpListener::from_std(listener.try_clone()?)?, None)?;
        let (publisher, events) = (admin.0.publisher(), admin.0.events());
        let serving =
            tokio::spawn(serve(entrance, publisher, events, Arc::<InMemoryAdmin>::clone(admin), stop.clone()));
        let working = handled.and_then(|handled| worker(admin, handled, &stop));
        Ok(Self { stop, serving, working })
    }
}

fn worker(
    admin: &InMemoryAdmin,
    handled: &Handled,
    stop: &CancellationToken,
) -> Option<AbortOnDropHandle<Result<Summary, WorkError>>> {
    let types = worked_on(handled, &admin.0.topology);
    if types.is_empty() {
        return None;
    }
    let mut worker = admin.0.worker();
    for name in types {
        worker = worker.handler(name, Arc::clone(&handled.handler));
    }
    if let Some(concurrency) = handled.concurrency {
        worker = worker.concurrency(concurrency);
    }
    if let Some(limit) = handled.drain_timeout {
        worker = worker.drain_timeout(limit);
    }
    Some(AbortOnDropHandle::new(tokio::spawn(worker.run(stop.clone()))))
}

/// Returns the types of the file that have the handler.
fn worked_on<'t>(handled: &Handled, topology: &'t Topology) -> Vec<&'t str> {
    let is_asked = |name: &&str| handled.types.is_empty() || handled.types.iter().any(|asked| asked == name);
    topology.types.keys().map(Word::as_str).filter(is_asked).collect()
}

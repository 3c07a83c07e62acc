//! The worker as a whole: its start, its end, and what it has done.

use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::de::DeserializeOwned;
use tokio::sync::{Notify, RwLock, Semaphore, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_service::Service;

use super::{
    aside,
    register::Batches,
    tally::{Summary, Tally},
    ways::Ways,
    work::{Common, Lane},
};
use crate::{
    domain::{
        spec::Topology,
        words::{EventType, UnknownType},
    },
    handler::{Closure, Handler, Json, Layered, Outcome, Run},
    ports::{Broker, BrokerError, Clock, Register},
};

/// How often a worker that stops when its queues are empty looks at them.
const LOOK: Duration = Duration::from_millis(200);

/// How long the last publishes and settles of a stopping worker may take.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A worker: handlers by type, and how to stop.
pub struct Worker {
    topology: Arc<Topology>,
    broker: Arc<dyn Broker>,
    register: Arc<dyn Register>,
    clock: Arc<dyn Clock>,
    handlers: BTreeMap<String, Arc<dyn Handler>>,
    concurrency: Option<u16>,
    drain_timeout: Option<Duration>,
    stop_when_empty: bool,
}

/// A type and who handles it.
type TypeHandler = (EventType, Arc<dyn Handler>);

/// Why a worker ended that was not asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The file has no such type.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// Nothing to do.
    #[error("the worker has no handler")]
    NoHandler,
    /// At the start: the broker is away, refuses, or misses an object.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// A handler cannot be started at all.
    #[error("{0}")]
    Handler(String),
}

impl Worker {
    /// A worker over any broker and register, with no handlers yet.
    #[must_use]
    pub fn new(
        topology: Arc<Topology>,
        broker: Arc<dyn Broker>,
        register: Arc<dyn Register>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            topology,
            broker,
            register,
            clock,
            handlers: BTreeMap::new(),
            concurrency: None,
            drain_timeout: None,
            stop_when_empty: false,
        }
    }

    /// Handles a type with an async closure. An error that can be shown is a failure, which is tried again.
    ///
    /// At the time limit the closure is dropped where it awaits. Code that blocks without awaiting goes on beyond it, and
    /// beyond its lease: run it in `tokio::task::spawn_blocking`, and watch `Run::lost`.
    #[must_use]
    pub fn handle<F, R, E>(self, event_type: &str, handler: F) -> Self
    where
        F: Fn(Run) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Display + 'static,
    {
        self.handler(event_type, Arc::new(Closure(handler)))
    }

    /// Handles a type whose payloads are JSON of one shape, with an async closure. A payload that cannot be read goes to
    /// dead-letter, for it will never be readable; everything else is as with [`handle`](Self::handle).
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use hatchery::{CancellationToken, Outcome, Run};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Mail { to: String, subject: String }
    ///
    /// # struct Mailer;
    /// # impl Mailer { async fn send(&self, to: &str, subject: &str, id: &str) -> std::io::Result<()> { Ok(()) } }
    /// // What all runs share.
    /// let mailer = Arc::new(Mailer);
    /// let worker = hatchery.worker().handle_json("mail", move |mail: Mail, run: Run| {
    ///     let mailer = Arc::clone(&mailer);
    ///     async move {
    ///         mailer.send(&mail.to, &mail.subject, &run.event.id).await?;
    ///         Ok::<_, std::io::Error>(Outcome::Done)
    ///     }
    /// });
    /// worker.run(CancellationToken::new()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn handle_json<T, F, R, E>(self, event_type: &str, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, Run) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, E>> + Send + 'static,
        E: Display + 'static,
    {
        self.handler(event_type, Arc::new(Json::new(handler)))
    }

    /// Handles a type with a `tower` service, and so with any layers around it. Each run has a clone of it. An error of
    /// the service or of a layer is a failure, which is tried again.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use hatchery::{CancellationToken, Outcome, Run};
    /// use tower::{ServiceBuilder, service_fn};
    ///
    /// let service = ServiceBuilder::new()
    ///     .buffer(1_000)
    ///     .rate_limit(10, Duration::from_secs(1))
    ///     .service(service_fn(|run: Run| async move { Ok::<_, std::io::Error>(Outcome::Done) }));
    /// hatchery.worker().service("mail", service).run(CancellationToken::new()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn service<S>(self, event_type: &str, service: S) -> Self
    where
        S: Service<Run, Response = Outcome> + Clone + Send + Sync + 'static,
        S::Error: Display + Send,
        S::Future: Send,
    {
        self.handler(event_type, Arc::new(Layered(service)))
    }

    /// Handles a type.
    #[must_use]
    pub fn handler(mut self, event_type: &str, handler: Arc<dyn Handler>) -> Self {
        self.handlers.insert(event_type.to_owned(), handler);
        self
    }

    /// Handlers that run at a time, instead of what the file says for each type. The prefetch changes in proportion, so
    /// that no delivery waits longer for its turn than the file allows.
    #[must_use]
    pub fn concurrency(self, concurrency: u16) -> Self {
        Self { concurrency: Some(concurrency.max(1)), ..self }
    }

    /// How long a stop waits for the handlers that run, instead of what the file says.
    #[must_use]
    pub fn drain_timeout(self, limit: Duration) -> Self {
        Self { drain_timeout: Some(limit), ..self }
    }

    /// Stops by itself once the processing and aside queues of its types are empty and everything it took is settled, what
    /// found its reference busy included. What waits in a hatchery, the ladder or a retry queue is not waited for.
    #[must_use]
    pub fn stop_when_empty(self, yes: bool) -> Self {
        Self { stop_when_empty: yes, ..self }
    }

    /// Works until it is told to stop. Then it stops consuming, finishes what runs within the drain limit, and gives
    /// the rest back.
    ///
    /// # Errors
    /// When it cannot start (the broker is away, refuses or misses an object), or a handler cannot be started. Once it
    /// works, a lost connection is waited for.
    pub async fn run(self, stop: CancellationToken) -> Result<Summary, WorkError> {
        let lanes_of = self.lanes()?;
        let ways = Ways::of(&self.topology);
        let names = &ways.names;
        let puts_aside = |event_type: &&EventType| self.topology.types[*event_type].puts_aside();
        let aside: Vec<&EventType> = lanes_of.iter().map(|(event_type, _)| event_type).filter(puts_aside).collect();
        let queues: Vec<String> = lanes_of
            .iter()
            .map(|(event_type, _)| names.processing(event_type))
            .chain(aside.iter().map(|event_type| names.put_aside(event_type)))
            .collect();
        let exchanges = [names.scheduler(), names.retry(), names.dead_letter()];
        let exchanges: Vec<String> = exchanges.into_iter().chain((!aside.is_empty()).then(|| names.aside())).collect();
        match stop.run_until_cancelled(self.broker.require(&exchanges, &queues)).await {
            Some(required) => required?,
            // Nothing has begun yet that could be finished, and the broker may never answer.
            None => return Ok(Summary::default()),
        }

        let drain = self.drain_timeout.unwrap_or_else(|| self.longest_drain(&lanes_of));
        let common = Arc::new(Common {
            ways,
            broker: self.broker,
            register: Batches::new(&self.register),
            clock: self.clock,
            quiet: Arc::new(RwLock::new(())),
            stop: stop.child_token(),
            give_back: CancellationToken::new(),
            abandon: CancellationToken::new(),
            expected: Mutex::new(None),
            suspects: Notify::new(),
            away: watch::Sender::new(false),
            failure: Mutex::new(None),
            tally: Tally::default(),
            topology: self.topology,
        });
        // Whoever drops this future takes everything down with it.
        let _stop = common.stop.clone().drop_guard();
        let _abandon = common.abandon.clone().drop_guard();
        let (consumers, tracker) = (TaskTracker::new(), TaskTracker::new());
        let mut putting_aside = Vec::new();
        for (event_type, handler) in lanes_of {
            let spec = common.topology.types[&event_type].clone();
            let concurrency = spec.concurrency_for(self.concurrency);
            let prefetch = spec.prefetch_for(concurrency);
            let lane = Arc::new(Lane {
                terms: spec.terms(&common.topology.redis),
                permits: Arc::new(Semaphore::new(concurrency.into())),
                busy: Semaphore::new(usize::from(prefetch / 2)),
                prefetch,
                common: Arc::clone(&common),
                event_type,
                spec,
                handler,
            });
            if lane.spec.puts_aside() {
                putting_aside.push(lane);
                continue;
            }
            let (common, tracker) = (Arc::clone(&common), tracker.clone());
            consumers.spawn(async move {
                let until = common.stop.clone();
                common.abandon.run_until_cancelled(lane.consume(tracker, until)).await
            });
        }
        if !putting_aside.is_empty() {
            let (common, tracker) = (Arc::clone(&common), tracker.clone());
            consumers.spawn(async move {
                common.abandon.run_until_cancelled(aside::consume(&common, &putting_aside, &tracker)).await;
            });
        }
        if self.stop_when_empty {
            tokio::select! {
                () = common.until_empty(&queues, &tracker) => common.stop.cancel(),
                () = common.stop.cancelled() => {}
            }
        }
        common.stop.cancelled().await;
        common.drain(&consumers, &tracker, drain).await;
        let failure = common.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        failure.map_or_else(|| Ok(common.tally.summary()), Err)
    }

    fn lanes(&self) -> Result<Vec<TypeHandler>, WorkError> {
        if self.handlers.is_empty() {
            return Err(WorkError::NoHandler);
        }
        let types = &self.topology.types;
        let lane = |(name, handler): (&String, &Arc<dyn Handler>)| match types.get_key_value(name.as_str()) {
            Some((event_type, _)) => Ok((event_type.clone(), Arc::clone(handler))),
            None => Err(UnknownType::among(name, types.keys()).into()),
        };
        self.handlers.iter().map(lane).collect()
    }

    fn longest_drain(&self, lanes: &[TypeHandler]) -> Duration {
        lanes.iter().map(|(event_type, _)| self.topology.types[event_type].drain_timeout).max().unwrap_or_default()
    }
}

impl Common {
    /// Until every queue has nothing ready and nothing is being worked on, at two looks in a row.
    async fn until_empty(&self, queues: &[String], tracker: &TaskTracker) {
        let mut before = None;
        loop {
            tokio::time::sleep(LOOK).await;
            let delivered = self.tally.summary().delivered;
            let idle = tracker.is_empty() && self.expects_nothing() && self.nothing_ready(queues).await;
            if idle && before == Some(delivered) {
                return;
            }
            before = idle.then_some(delivered);
        }
    }

    async fn nothing_ready(&self, queues: &[String]) -> bool {
        for queue in queues {
            match self.broker.ready(queue).await {
                Ok(0) => {}
                Ok(_) => return false,
                Err(error) => {
                    tracing::warn!(%error, "cannot tell whether {queue} is empty");
                    return false;
                }
            }
        }
        true
    }

    /// Waits for what runs, then gives it back; then for the last confirms and settles, then gives those up: the
    /// broker delivers again what was not acknowledged.
    async fn drain(&self, consumers: &TaskTracker, tracker: &TaskTracker, limit: Duration) {
        consumers.close();
        tracker.close();
        let all = async {
            consumers.wait().await;
            tracker.wait().await;
        };
        tokio::pin!(all);
        if tokio::time::timeout(limit, &mut all).await.is_ok() {
            return;
        }
        tracing::warn!("{} deliveries are given back after the drain limit of {limit:?}", tracker.len());
        self.give_back.cancel();
        if tokio::time::timeout(LAST_WORDS, &mut all).await.is_err() {
            tracing::warn!("{} deliveries could not be settled; the broker delivers them again", tracker.len());
            self.abandon.cancel();
            all.await;
        }
    }
}

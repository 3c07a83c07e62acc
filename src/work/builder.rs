//! The configuration of a worker: its handlers by type, and how it stops. `worker.rs` runs it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display},
    future::Future,
    sync::Arc,
    time::Duration,
};

use serde::de::DeserializeOwned;
use tower_service::Service;

use super::{journal::Observer, readiness::Readiness};
use crate::{
    domain::{event::Event, kind::EventKind, spec::Topology, transition::Transition},
    handler::{Closure, Handler, IntoOutcome, Json, Layered, Outcome, Run},
    ports::{Broker, Clock, Register},
    publish::publisher::Publisher,
    trace::{TraceContext, Traces},
};

/// Consumes events and runs a handler for each.
///
/// [`Hatchery::worker`](crate::Hatchery::worker) creates a worker, the methods here configure it, and [`run`](Self::run) runs
/// it. Any number of workers may run on one topology, in one process or in many.
///
/// The file sets how many events of a type run at a time, how long a run may take, and what follows a failure (`concurrency`,
/// `handler-timeout`, `on-failure`, `retry`). A handler returns an [`Outcome`]. An error, a panic and a run beyond the time
/// limit are failures.
///
/// | handler | method |
/// | --- | --- |
/// | an async function or closure | [`handle`](Self::handle) |
/// | an async function or closure, with JSON payloads | [`handle_json`](Self::handle_json), [`on`](Self::on) |
/// | a `tower` service with layers, such as limits and traces | [`service`](Self::service) |
/// | a type that implements [`Handler`] | [`handler`](Self::handler) |
///
/// Functions that share a state receive it as their first argument, after [`state`](Self::state):
///
/// ```no_run
/// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use hatchery::{NewEvent, Outcome, Publisher, Run};
///
/// #[derive(serde::Deserialize)]
/// struct Employee { name: String, leaves: Option<hatchery::jiff::Timestamp> }
///
/// struct Payroll { publisher: Publisher }
///
/// impl Payroll {
///     async fn import(self: Arc<Self>, employee: Employee, run: Run) -> Result<Outcome, Outcome> {
///         // May run again for the same event: the id makes it the same mail.
///         let mail = NewEvent::json("mail", &employee.name)?.id(format!("for-{}", run.event.id));
///         self.publisher.publish(mail).await?;
///         Ok(match employee.leaves {
///             Some(at) => Outcome::requeue(at, "their last day"),
///             None => Outcome::Done,
///         })
///     }
/// }
///
/// async fn mail(name: String, _: Run) -> Result<(), Outcome> {
///     println!("Dear {name}");
///     Ok(())
/// }
///
/// let worker = hatchery.worker().handle_json("mail", mail);
/// let payroll = Arc::new(Payroll { publisher: hatchery.publisher() });
/// let worker = worker.state(payroll).handle_json("hr-import", Payroll::import);
/// let summary = worker.run_until(hatchery::shutdown_signal()?).await?;
/// println!("{summary:?}");
/// # Ok(())
/// # }
/// ```
pub struct Worker<S = ()> {
    pub(super) state: S,
    pub(super) setup: Setup,
}

/// The configuration of a worker. The state is no part of it, because each handler function that was added holds it.
pub(super) struct Setup {
    pub(super) topology: Arc<Topology>,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) register: Arc<dyn Register>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) handlers: BTreeMap<String, Arc<dyn Handler>>,
    pub(super) sources: BTreeSet<String>,
    /// The publisher of the sources; `None`: the worker makes its own.
    pub(super) publisher: Option<Publisher>,
    pub(super) concurrency: Option<u16>,
    pub(super) drain_timeout: Option<Duration>,
    pub(super) stop_when_empty: bool,
    pub(super) inline: bool,
    pub(super) readiness: Readiness,
    pub(super) observers: Vec<Observer>,
    pub(super) traces: Traces,
}

impl<S> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { topology, handlers, .. } = &self.setup;
        let types: Vec<&String> = handlers.keys().collect();
        f.debug_struct("Worker").field("topology", &topology.name).field("types", &types).finish_non_exhaustive()
    }
}

impl Worker {
    /// Creates a worker without handlers over any broker and register, for tests. Programs use
    /// [`Hatchery::worker`](crate::Hatchery::worker). Not part of the stable interface.
    #[must_use]
    pub fn new(
        topology: Arc<Topology>,
        broker: Arc<dyn Broker>,
        register: Arc<dyn Register>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let setup = Setup {
            topology,
            broker,
            register,
            clock,
            handlers: BTreeMap::new(),
            sources: BTreeSet::new(),
            publisher: None,
            concurrency: None,
            drain_timeout: None,
            stop_when_empty: false,
            inline: false,
            readiness: Readiness::default(),
            observers: Vec::new(),
            traces: None,
        };
        Self { state: (), setup }
    }

    /// Handles a type with an async function or closure. [`IntoOutcome`] lists the return types, and what an error means.
    ///
    /// A closure has to name its error type, as in `Ok::<_, std::io::Error>(…)`. [`run`](Self::run) checks that the type is in
    /// the file. A type has one handler: a second one replaces the first.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::WorkError> {
    /// use hatchery::{CancellationToken, Outcome, Run};
    ///
    /// async fn print(run: Run) -> std::io::Result<Outcome> {
    ///     tokio::fs::write("/dev/lp0", &run.event.payload).await?;
    ///     Ok(Outcome::Done)
    /// }
    ///
    /// let copies = 3;
    /// let print_all = move |run: Run| async move {
    ///     for _ in 0..copies {
    ///         print(run.clone()).await?;
    ///     }
    ///     Ok::<_, std::io::Error>(Outcome::Done)
    /// };
    /// let worker = hatchery.worker().handle("print", print).handle("print-all", print_all);
    /// worker.run(CancellationToken::new()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// At the time limit the future is dropped where it awaits. Code that blocks without awaiting continues beyond the limit
    /// and its lease: run it in `tokio::task::spawn_blocking`, and check [`Run::lost`].
    #[must_use]
    pub fn handle<F, R>(self, event_type: &str, handler: F) -> Self
    where
        F: Fn(Run) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.handler(event_type, Arc::new(Closure(handler)))
    }

    /// Handles a type whose payloads are JSON, with an async function or closure.
    ///
    /// An event whose payload does not parse is dead-lettered; the reason has the place of the error. The content type is
    /// ignored. Otherwise like [`handle`](Self::handle).
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), Box<dyn std::error::Error>> {
    /// use hatchery::{Outcome, Run};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Mail { to: String, subject: String }
    ///
    /// # async fn deliver(to: &str, subject: &str, id: &str) -> std::io::Result<()> { Ok(()) }
    /// async fn send(mail: Mail, run: Run) -> Result<(), Outcome> {
    ///     deliver(&mail.to, &mail.subject, &run.event.id).await?;
    ///     Ok(())
    /// }
    ///
    /// let worker = hatchery.worker().handle_json("mail", send);
    /// worker.run_until(hatchery::shutdown_signal()?).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn handle_json<T, F, R>(self, event_type: &str, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, Run) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.handler(event_type, Arc::new(Json::new(handler)))
    }

    /// Handles events of this kind, like [`handle_json`](Self::handle_json). [`EventKind`] has an example.
    #[must_use]
    pub fn on<K, F, R>(self, _kind: K, handler: F) -> Self
    where
        K: EventKind,
        F: Fn(K::Payload, Run) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.handle_json(K::TYPE, handler)
    }

    /// Sets the state that handler functions added from here on receive as their first argument. Handlers that were added
    /// before keep theirs.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use hatchery::{NewEvent, Outcome, Publisher, Run};
    ///
    /// struct Payroll { publisher: Publisher }
    ///
    /// impl Payroll {
    ///     async fn import(self: Arc<Self>, run: Run) -> Result<(), Outcome> {
    ///         let mail = NewEvent::new("mail", run.event.payload.clone()).id(format!("for-{}", run.event.id));
    ///         self.publisher.publish(mail).await?;
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let payroll = Arc::new(Payroll { publisher: hatchery.publisher() });
    /// let worker = hatchery.worker().state(payroll).handle("hr-import", Payroll::import);
    /// worker.run_until(hatchery::shutdown_signal()?).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn state<S: Send + Sync + 'static>(self, state: Arc<S>) -> Worker<Arc<S>> {
        Worker { state, setup: self.setup }
    }
}

impl<S> Worker<S> {
    /// Handles a type with a `tower` service and its layers. Each run calls a clone of the service. An error of the service or
    /// of a layer is a failure.
    ///
    /// - The clones of a service share its limits, so a limit applies to all runs of the type. A `ServiceBuilder` that is used
    ///   for two types creates two limits; `GlobalConcurrencyLimitLayer` creates one.
    /// - A layer whose service is not `Clone`, such as `rate_limit`, has to be below a `buffer`.
    /// - The time in which a run waits for a limit counts for the type's `handler-timeout`, and the run takes one of its
    ///   `concurrency`.
    /// - A boxed service is a `BoxCloneSyncService`.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use hatchery::{CancellationToken, Outcome, Run};
    /// use tower::{ServiceBuilder, service_fn};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Mail { to: String }
    ///
    /// async fn send(run: Run) -> anyhow::Result<Outcome> {
    ///     let Ok(Mail { to }) = run.event.json() else {
    ///         return Ok(Outcome::DeadLetter { reason: "not a mail".to_owned() });
    ///     };
    ///     println!("Dear {to}");
    ///     Ok(Outcome::Done)
    /// }
    ///
    /// async fn print(_: Run) -> anyhow::Result<Outcome> { Ok(Outcome::Done) }
    ///
    /// // The mail server accepts ten mails a second in all.
    /// let limit = ServiceBuilder::new().buffer(100).rate_limit(10, Duration::from_secs(1));
    /// let send = limit.service(service_fn(send));
    /// // A layer for all types: it logs a line for each run.
    /// let all = ServiceBuilder::new()
    ///     .map_request(|run: Run| {
    ///         tracing::info!(id = %run.event.id, attempts = run.event.attempts, "runs");
    ///         run
    ///     });
    /// let worker = hatchery
    ///     .worker()
    ///     .service("mail", all.service(send))
    ///     .service("print", all.service(service_fn(print)));
    /// worker.run(CancellationToken::new()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn service<T>(self, event_type: &str, service: T) -> Self
    where
        T: Service<Run, Response = Outcome> + Clone + Send + Sync + 'static,
        T::Error: Display + Send,
        T::Future: Send,
    {
        self.handler(event_type, Arc::new(Layered(service)))
    }

    /// Handles a type with a [`Handler`].
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery, mailer: impl hatchery::Handler) -> Result<(), hatchery::WorkError> {
    /// use std::sync::Arc;
    /// use hatchery::{CancellationToken, Handler};
    ///
    /// // One handler for two types. `run.event.event_type` tells them apart.
    /// let mailer: Arc<dyn Handler> = Arc::new(mailer);
    /// let worker = hatchery.worker().handler("mail", mailer.clone()).handler("newsletter", mailer);
    /// worker.run(CancellationToken::new()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn handler(mut self, event_type: &str, handler: Arc<dyn Handler>) -> Self {
        self.setup.handlers.insert(event_type.to_owned(), handler);
        self
    }

    /// Takes messages from a source of the file, and publishes the events that its rules make of them. `docs/sources.md` has the
    /// rules.
    ///
    /// A worker may have sources, handlers, or both. [`run`](Self::run) checks that the source is in the file and its queue on
    /// the broker.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), Box<dyn std::error::Error>> {
    /// let worker = hatchery.worker().source("hr");
    /// let summary = worker.run_until(hatchery::shutdown_signal()?).await?;
    /// println!("{} messages, {} of them dead-lettered", summary.messages, summary.unmappable);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn source(mut self, name: &str) -> Self {
        self.setup.sources.insert(name.to_owned());
        self
    }

    /// Sets the publisher of the sources.
    #[must_use]
    pub(crate) fn publishing(mut self, publisher: Publisher) -> Self {
        self.setup.publisher = Some(publisher);
        self
    }

    /// Wraps every handler.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn wrap_handlers(mut self, wrap: impl Fn(Arc<dyn Handler>) -> Arc<dyn Handler>) -> Self {
        self.setup.handlers.values_mut().for_each(|handler| *handler = wrap(Arc::clone(handler)));
        self
    }

    /// Sets how many handlers of each type run at a time, at least 1, instead of the file's `concurrency`. The prefetch changes
    /// in proportion, so that no delivery waits longer than the file allows. Types with `on-failure: block` always run one.
    ///
    /// ```no_run
    /// # fn example(worker: hatchery::Worker) -> Result<hatchery::Worker, Box<dyn std::error::Error>> {
    /// let cores = std::thread::available_parallelism()?;
    /// let worker = worker.concurrency(u16::try_from(cores.get())?);
    /// # Ok(worker)
    /// # }
    /// ```
    #[must_use]
    pub fn concurrency(mut self, concurrency: u16) -> Self {
        self.setup.concurrency = Some(concurrency.max(1));
        self
    }

    /// Sets how long a stopping worker waits for running handlers, instead of the file's `drain-timeout` (25 s by default; the
    /// longest of its types).
    ///
    /// After this time handlers are dropped where they await, and their events are returned to the queues. That takes up to four
    /// seconds more.
    ///
    /// ```no_run
    /// # fn example(worker: hatchery::Worker) -> hatchery::Worker {
    /// use std::time::Duration;
    ///
    /// // `terminationGracePeriodSeconds: 90`
    /// worker.drain_timeout(Duration::from_secs(85))
    /// # }
    /// ```
    #[must_use]
    pub fn drain_timeout(mut self, limit: Duration) -> Self {
        self.setup.drain_timeout = Some(limit);
        self
    }

    /// Ends the worker once the queues of its sources and the processing and quarantine queues of its types are empty and all its deliveries are settled. Events
    /// that wait in a hatchery, the ladder or a retry queue do not count.
    ///
    /// ```no_run
    /// # async fn example(worker: hatchery::Worker) -> Result<(), hatchery::WorkError> {
    /// use hatchery::CancellationToken;
    ///
    /// // A nightly job.
    /// let summary = worker.stop_when_empty(true).run(CancellationToken::new()).await?;
    /// println!("{} done, {} failed", summary.done, summary.retried);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stop_when_empty(mut self, yes: bool) -> Self {
        self.setup.stop_when_empty = yes;
        self
    }

    /// Continues the trace of each event in the spans of its runs.
    #[must_use]
    pub fn trace_context(mut self, traces: impl TraceContext) -> Self {
        self.setup.traces = Some(Arc::new(traces));
        self
    }

    /// Calls a function at each [`Transition`] of an event in this worker: its start, its end, its failures. May be called
    /// several times.
    ///
    /// The worker waits for the function, so it must return at once. What takes longer goes through a channel:
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), Box<dyn std::error::Error>> {
    /// use hatchery::{Outcome, Run, Transition};
    ///
    /// let (letters, mut inbox) = tokio::sync::mpsc::channel(1_000);
    /// let worker = hatchery.worker().handle("mail", |_: Run| async { Ok::<_, String>(Outcome::Done) });
    /// let worker = worker.observe(move |event, transition| {
    ///     if let Transition::DeadLettered { reason, .. } = transition {
    ///         // If nobody reads, the letter is not told.
    ///         let _ = letters.try_send((event.id.clone(), reason.clone()));
    ///     }
    /// });
    /// tokio::spawn(async move {
    ///     while let Some((id, reason)) = inbox.recv().await {
    ///         println!("{id} needs somebody: {reason}");
    ///     }
    /// });
    /// worker.run_until(hatchery::shutdown_signal()?).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn observe(mut self, observer: impl Fn(&Event, &Transition) + Send + Sync + 'static) -> Self {
        self.setup.observers.push(Arc::new(observer));
        self
    }

    /// Returns what a readiness probe asks: whether the worker consumes. It stays valid while the worker runs.
    ///
    /// ```no_run
    /// # async fn example(worker: hatchery::Worker) -> Result<(), hatchery::WorkError> {
    /// use hatchery::CancellationToken;
    ///
    /// let readiness = worker.readiness();
    /// let working = tokio::spawn(worker.run(CancellationToken::new()));
    /// println!("ready: {}", readiness.is_ready());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.setup.readiness.clone()
    }

    /// Begins each run in the task that takes the deliveries of its type, and gives it a task of its own only if it awaits
    /// something that is not ready. For handlers that mostly compute or answer from memory in a few microseconds: a worker then
    /// does up to twice as many events a second.
    ///
    /// A handler that computes for long, or blocks its thread, stops all events of its type meanwhile, also those that only
    /// wait for their acknowledgement. Types with `on-failure: block` are not affected.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::WorkError> {
    /// use std::{convert::Infallible, sync::atomic::{AtomicU64, Ordering}};
    /// use hatchery::{CancellationToken, Outcome, Run};
    ///
    /// static CLICKS: AtomicU64 = AtomicU64::new(0);
    ///
    /// let worker = hatchery.worker().inline(true).handle("click", |_: Run| {
    ///     CLICKS.fetch_add(1, Ordering::Relaxed);
    ///     std::future::ready(Ok::<_, Infallible>(Outcome::Done))
    /// });
    /// worker.run(CancellationToken::new()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn inline(mut self, yes: bool) -> Self {
        self.setup.inline = yes;
        self
    }
}

//! A worker as it is told what to do: handlers by type, and how to stop. `run.rs` does it.

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    future::Future,
    sync::Arc,
    time::Duration,
};

use serde::de::DeserializeOwned;
use tower_service::Service;

use crate::{
    domain::{kind::EventKind, safety::Unsafe, spec::Topology, words::UnknownType},
    handler::{Closure, Handler, IntoOutcome, Json, Layered, Outcome, Run},
    ports::{Broker, BrokerError, Clock, Register, RegisterError},
};

/// A worker: handlers by type, and how to stop.
///
/// [`Hatchery::worker`](crate::Hatchery::worker) makes one, the methods here say what it does, and [`run`](Self::run)
/// does it. As many of them as you like work on one topology, in one process or in many.
///
/// How many events of a type are handled at a time, how long one may take, and what follows a failure stand in the file
/// (`concurrency`, `handler-timeout`, `on-failure`, `retry`). A handler answers with an [`Outcome`]; an error, a panic
/// and no answer in time are failures.
///
/// | what there is | takes |
/// | --- | --- |
/// | an async function or closure | [`handle`](Self::handle) |
/// | the same, and payloads that are JSON | [`handle_json`](Self::handle_json), [`on`](Self::on) |
/// | a `tower` service, with layers: limits, traces, what all types need | [`service`](Self::service) |
/// | a type of your own | [`handler`](Self::handler) |
///
/// Functions that share a state get it as their first argument, after [`state`](Self::state):
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
    pub(super) topology: Arc<Topology>,
    pub(super) broker: Arc<dyn Broker>,
    pub(super) register: Arc<dyn Register>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) handlers: BTreeMap<String, Arc<dyn Handler>>,
    pub(super) concurrency: Option<u16>,
    pub(super) drain_timeout: Option<Duration>,
    pub(super) stop_when_empty: bool,
}

/// Why a worker ended that was not asked to.
///
/// ```no_run
/// # async fn example(worker: hatchery::Worker) -> std::process::ExitCode {
/// use std::process::ExitCode;
/// use hatchery::{BrokerError, CancellationToken, WorkError};
///
/// match worker.run(CancellationToken::new()).await {
///     Ok(_) => ExitCode::SUCCESS,
///     // Somebody has to look at the file, or at the program.
///     Err(error @ (WorkError::UnknownType(_) | WorkError::NoHandler)) => panic!("{error}"),
///     // billing.processor.mail does not exist on the broker; run `topology apply`
///     Err(error) => {
///         eprintln!("{error}");
///         ExitCode::FAILURE
///     }
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The file has no type by the name of a handler. Nothing was begun.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// There is no handler, so there is nothing to do.
    #[error("the worker has no handler")]
    NoHandler,
    /// The topology is not safe to work on.
    #[error(transparent)]
    Topology(#[from] Unsafe),
    /// At the start: the broker is away, refuses, or misses an object. Later: it does not let this user consume, or this
    /// program has closed the connection.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The register is in use by another broker ([`RegisterError::InUse`]). What was not started went back to its queue.
    #[error(transparent)]
    Register(RegisterError),
    /// A handler cannot be started at all ([`HandlerError::CannotStart`](crate::HandlerError::CannotStart)), which says
    /// this.
    #[error("{0}")]
    Handler(String),
}

impl<S> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<&String> = self.handlers.keys().collect();
        f.debug_struct("Worker").field("topology", &self.topology.name).field("types", &types).finish_non_exhaustive()
    }
}

impl Worker {
    /// A worker over any broker and register, with no handlers yet. [`Hatchery::worker`](crate::Hatchery::worker) is
    /// the usual way; this one is for tests, and not part of what can be relied on.
    #[must_use]
    pub fn new(
        topology: Arc<Topology>,
        broker: Arc<dyn Broker>,
        register: Arc<dyn Register>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            state: (),
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

    /// Handles a type with an async function or closure. [`IntoOutcome`] lists what it may return, and what follows an
    /// error.
    ///
    /// A closure has to name its error type somewhere, as in `Ok::<_, std::io::Error>(…)`; a function does so anyway.
    /// The type has to be in the file, which [`run`](Self::run) finds out. A type has one handler: the last that is
    /// said counts.
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
    /// At the time limit the closure is dropped where it awaits. Code that blocks without awaiting goes on beyond it, and
    /// beyond its lease: run it in `tokio::task::spawn_blocking`, and watch [`Run::lost`].
    #[must_use]
    pub fn handle<F, R>(self, event_type: &str, handler: F) -> Self
    where
        F: Fn(Run) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.handler(event_type, Arc::new(Closure(handler)))
    }

    /// Handles a type whose payloads are JSON of one shape, with an async function or closure. A payload that cannot be
    /// read goes to dead-letter, for it will never be readable, and the reason says where the fault is; everything else
    /// is as with [`handle`](Self::handle). The content type is not looked at.
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

    /// Handles events of this kind, as [`handle_json`](Self::handle_json) does. [`EventKind`] has an example.
    #[must_use]
    pub fn on<K, F, R>(self, _kind: K, handler: F) -> Self
    where
        K: EventKind,
        F: Fn(K::Payload, Run) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.handle_json(K::TYPE, handler)
    }

    /// Gives a state to the handler functions that are added from here on: each takes it as its first argument. Handlers
    /// that were added before keep what they have.
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
    ///         let mail = NewEvent::new("mail", run.event.payload).id(format!("for-{}", run.event.id));
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
        self.with_state(state)
    }
}

impl<S> Worker<S> {
    /// The same worker with another state for the handlers to come.
    pub(super) fn with_state<T>(self, state: T) -> Worker<T> {
        let Self { topology, broker, register, clock, handlers, concurrency, drain_timeout, stop_when_empty, .. } =
            self;
        Worker { state, topology, broker, register, clock, handlers, concurrency, drain_timeout, stop_when_empty }
    }

    /// Handles a type with a `tower` service, and so with any layers around it. Each run has a clone of it. An error of
    /// the service or of a layer is a failure, which is tried again.
    ///
    /// A limit of `tower` is shared by the clones of its service, and so by all runs of the type; a `ServiceBuilder`
    /// that is used for two types makes two limits (`GlobalConcurrencyLimitLayer` makes one). A layer whose service is
    /// no `Clone`, like `rate_limit`, stands below a `buffer`. What waits for a limit waits within the type's
    /// `handler-timeout`, and takes one of its `concurrency`. A boxed service is a `BoxCloneSyncService`.
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
    /// // The mail server takes ten a second, from all runs together.
    /// let limit = ServiceBuilder::new().buffer(100).rate_limit(10, Duration::from_secs(1));
    /// let send = limit.service(service_fn(send));
    /// // What all types need stands around each of them: here a line in the log for each run.
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

    /// Handles a type with a [`Handler`] of your own, which says how.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery, mailer: impl hatchery::Handler) -> Result<(), hatchery::WorkError> {
    /// use std::sync::Arc;
    /// use hatchery::{CancellationToken, Handler};
    ///
    /// // One for two types, each event of which says by `run.event.event_type` what it is.
    /// let mailer: Arc<dyn Handler> = Arc::new(mailer);
    /// let worker = hatchery.worker().handler("mail", mailer.clone()).handler("newsletter", mailer);
    /// worker.run(CancellationToken::new()).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn handler(mut self, event_type: &str, handler: Arc<dyn Handler>) -> Self {
        self.handlers.insert(event_type.to_owned(), handler);
        self
    }

    /// Wraps each handler.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn wrap_handlers(mut self, wrap: impl Fn(Arc<dyn Handler>) -> Arc<dyn Handler>) -> Self {
        self.handlers.values_mut().for_each(|handler| *handler = wrap(Arc::clone(handler)));
        self
    }

    /// Handlers that run at a time, of each type, instead of what the file says; at least 1. The prefetch changes in
    /// proportion, so that no delivery waits longer for its turn than the file allows. Types with `on-failure: block`
    /// keep their one.
    ///
    /// ```no_run
    /// # fn example(worker: hatchery::Worker) -> Result<hatchery::Worker, Box<dyn std::error::Error>> {
    /// let cores = std::thread::available_parallelism()?;
    /// let worker = worker.concurrency(u16::try_from(cores.get())?);
    /// # Ok(worker)
    /// # }
    /// ```
    #[must_use]
    pub fn concurrency(self, concurrency: u16) -> Self {
        Self { concurrency: Some(concurrency.max(1)), ..self }
    }

    /// How long a stop waits for the handlers that run, instead of what the file says (25 s; of several types the
    /// longest). What runs for longer is dropped where it awaits, and its event is given back; that takes four seconds
    /// more at most.
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
    pub fn drain_timeout(self, limit: Duration) -> Self {
        Self { drain_timeout: Some(limit), ..self }
    }

    /// Stops by itself once the processing and aside queues of its types are empty and everything it took is settled, what
    /// found its reference busy included. What waits in a hatchery, the ladder or a retry queue is not waited for.
    ///
    /// ```no_run
    /// # async fn example(worker: hatchery::Worker) -> Result<(), hatchery::WorkError> {
    /// use hatchery::CancellationToken;
    ///
    /// // A job that runs at night.
    /// let summary = worker.stop_when_empty(true).run(CancellationToken::new()).await?;
    /// println!("{} done, {} failed", summary.done, summary.retried);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stop_when_empty(self, yes: bool) -> Self {
        Self { stop_when_empty: yes, ..self }
    }
}

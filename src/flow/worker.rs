//! A worker as it is told what to do: handlers by type, and how to stop. `run.rs` does it.

use std::{collections::BTreeMap, fmt::Display, sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use tower_service::Service;

use crate::{
    domain::{spec::Topology, words::UnknownType},
    handler::{Closure, Handler, Json, Layered, Outcome, Run},
    ports::{Broker, BrokerError, Clock, Register},
};

/// A worker: handlers by type, and how to stop.
pub struct Worker {
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
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// The file has no such type.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// Nothing to do.
    #[error("the worker has no handler")]
    NoHandler,
    /// At the start: the broker is away, refuses, or misses an object. Later: it does not let this user consume, or this
    /// program has closed the connection.
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
}

//! A connected topology. It makes publishers, workers and [`Events`].

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    adapters::{
        clock::SystemClock,
        rabbitmq::{RabbitMq, connection::AmqpUrlError},
        redis::RedisRegister,
    },
    domain::{names, spec::Topology},
    flow::{events::Events, publish::Publisher, worker::Worker},
    ports::{Broker, BrokerError, Register, RegisterError},
};

/// A topology with the broker and the Redis that it lives on.
///
/// It makes publishers, workers, and what people do to events. One for a process is enough. It has one connection for
/// publishing, and one for consuming once a worker runs; Redis is connected to when it is first needed. Lost
/// connections come back by themselves. Dropping it ends nothing: what was made from it keeps the connections.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use hatchery::{CancellationToken, Hatchery, NewEvent, Outcome, Run};
///
/// let topology = hatchery::read_file("topology.yaml")?;
/// let amqp = std::env::var("AMQP_URL")?;
/// let hatchery = Hatchery::builder(topology).amqp_url(amqp).name("mailer").connect().await?;
/// // Handlers that publish take a publisher with them.
/// let publisher = hatchery.publisher();
/// let worker = hatchery.worker().handle("hr-import", move |run: Run| {
///     let publisher = publisher.clone();
///     async move {
///         publisher.publish(NewEvent::new("mail", run.event.payload)).await?;
///         Ok::<_, hatchery::PublishError>(Outcome::Done)
///     }
/// });
/// worker.run(CancellationToken::new()).await?;
/// hatchery.close().await;
/// # Ok(())
/// # }
/// ```
pub struct Hatchery {
    pub(super) topology: Arc<Topology>,
    pub(super) broker: Arc<RabbitMq>,
    pub(super) register: RedisRegister,
    pub(super) publisher: Publisher,
}

/// Why there is no connection. No message has a password in it.
///
/// ```
/// use hatchery::{ConnectError, Hatchery};
///
/// let builder = Hatchery::builder(hatchery::read_file("topology.yaml")?);
/// let refused = builder.amqp_url("https://app:secret@rabbit").events().expect_err("no AMQP URL");
/// assert!(matches!(refused, ConnectError::Url(_)));
/// assert!(refused.to_string().starts_with("not an AMQP URL: the scheme is `https`"));
/// assert!(!refused.to_string().contains("secret"));
/// # Ok::<(), hatchery::ReadError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The AMQP URL is none.
    #[error(transparent)]
    Url(#[from] AmqpUrlError),
    /// The broker is away or refuses.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The Redis URL is none; or, asked for by [`Hatchery::require_register`], Redis is away or refuses.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// People wait longer than publishers, and a batch takes longer than a question.
const EVENTS_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn events(topology: Arc<Topology>, broker: Arc<dyn Broker>, register: RedisRegister) -> Events {
    let register = Arc::new(register.with_limit(EVENTS_LIMIT));
    Events::new(topology, broker, register.clone(), register, Arc::new(SystemClock))
}

impl fmt::Debug for Hatchery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hatchery").field("topology", &self.topology.name).finish_non_exhaustive()
    }
}

impl Hatchery {
    /// The topology that it was connected with.
    ///
    /// ```no_run
    /// # fn example(hatchery: hatchery::Hatchery) {
    /// for name in hatchery.topology().types.keys() {
    ///     println!("{name}");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The publisher. All that are made from this share one connection, and the order of their versions; they also
    /// share the bound of what is in flight, unless [`Publisher::in_flight`] gives one its own.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::PublishError> {
    /// use hatchery::NewEvent;
    ///
    /// let publisher = hatchery.publisher();
    /// let published = publisher.publish(NewEvent::new("mail", r#"{"to": "ann"}"#)).await?;
    /// println!("{}", published.id);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        self.publisher.clone()
    }

    /// A worker without handlers. Several may run in one process, each with types of its own or with the same.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), Box<dyn std::error::Error>> {
    /// use hatchery::{CancellationToken, Outcome, Run};
    ///
    /// async fn import(payload: &[u8]) -> Result<(), std::io::Error> { Ok(()) }
    ///
    /// let stop = CancellationToken::new();
    /// let worker = hatchery.worker().handle("hr-import", |run: Run| async move {
    ///     import(&run.event.payload).await?;
    ///     Ok::<_, std::io::Error>(Outcome::Done)
    /// });
    /// let summary = worker.run(stop).await?;
    /// println!("{} done", summary.done);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn worker(&self) -> Worker {
        let register = Arc::new(self.register.clone());
        Worker::new(Arc::clone(&self.topology), self.broker(), register, Arc::new(SystemClock))
    }

    /// The events that wait: to look for them, cancel them, or give them another time.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::EventsError> {
    /// use hatchery::EventSelector;
    ///
    /// hatchery.events().cancel(&EventSelector::reference("hr-import", "1234")).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self) -> Events {
        events(Arc::clone(&self.topology), self.broker(), self.register.clone())
    }

    /// Makes sure now that Redis answers and lets this client in, within a second. For a program that had rather not
    /// start than wait; a worker waits for Redis by itself, and a publisher does without.
    ///
    /// # Errors
    /// When it does not. A `ConnectError` can be made of it.
    ///
    /// ```no_run
    /// # async fn example(builder: hatchery::Builder) -> Result<(), hatchery::ConnectError> {
    /// let hatchery = builder.connect().await?;
    /// hatchery.require_register().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn require_register(&self) -> Result<(), RegisterError> {
        self.register.ping().await
    }

    /// Makes sure now that the topology was applied: the broker has the exchange that every event comes by. For a program that
    /// had rather not start than wait; a worker looks for all that it needs by itself.
    ///
    /// # Errors
    /// [`BrokerError::Missing`] when it was not; and when the broker does not answer. A `ConnectError` can be made of it.
    ///
    /// ```no_run
    /// # async fn example(builder: hatchery::Builder) -> Result<(), hatchery::ConnectError> {
    /// let hatchery = builder.connect().await?;
    /// hatchery.require_topology().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn require_topology(&self) -> Result<(), BrokerError> {
        self.broker.require(&[names::scheduler(self.topology.name.as_str())], &[]).await
    }

    /// For a health check: says whether the workers made from this have reached the broker when they last tried to connect.
    /// They have not before the first one runs.
    /// It says nothing of Redis, which they wait for by themselves.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> std::io::Result<()> {
    /// use axum::{Router, http::StatusCode, routing::get};
    ///
    /// let is_healthy = hatchery.health();
    /// let health = move || async move {
    ///     if is_healthy() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
    /// };
    /// let port = tokio::net::TcpListener::bind("0.0.0.0:9464").await?;
    /// axum::serve(port, Router::new().route("/healthz", get(health))).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn health(&self) -> impl Fn() -> bool + Clone + Send + Sync + use<> {
        let broker = Arc::clone(&self.broker);
        move || broker.is_reached()
    }

    /// Closes the connections to the broker properly, within two seconds. Publishers and workers made from this end with
    /// them: a publish fails, and a worker finishes what runs within its drain limit and ends with an error. Stop workers
    /// first, and wait for them: what they run while their connection closes comes again.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery, worker: hatchery::Worker) -> Result<(), hatchery::WorkError> {
    /// use hatchery::CancellationToken;
    ///
    /// let stop = CancellationToken::new();
    /// let working = tokio::spawn(worker.run(stop.clone()));
    /// tokio::signal::ctrl_c().await.ok();
    /// stop.cancel();
    /// let summary = working.await.expect("it does not panic")?;
    /// hatchery.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(self) {
        self.broker.close().await;
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::<RabbitMq>::clone(&self.broker)
    }
}

//! A connected topology, which creates publishers, workers and [`Events`].

use std::{fmt, sync::Arc, time::Duration};

use super::life_cycle::LifeCycleReader;
use crate::{
    adapters::{
        rabbitmq::{RabbitMq, connection::AmqpUrlError},
        redis::RedisRegister,
    },
    domain::{
        names::{self, Names},
        spec::Topology,
    },
    operate::Events,
    ports::{Broker, BrokerError, Register, RegisterError},
    publish::publisher::Publisher,
    records::Records,
    work::Worker,
};

/// A topology, connected to its broker and its Redis. Creates publishers, workers and [`Events`].
///
/// One is enough for a process. It has one connection for publishing and, once a worker runs, one for consuming and one to read which
/// types are paused; a worker whose types have `register: off` takes single messages over a fourth one, and records of what happens to events have another. Redis is connected when it is first used. Lost connections are restored automatically. Publishers and workers keep the connections
/// open after this value is dropped.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use hatchery::{CancellationToken, Hatchery, NewEvent, Outcome, Run};
///
/// let topology = hatchery::read_file("topology.yaml")?;
/// let amqp = std::env::var("AMQP_URL")?;
/// let hatchery = Hatchery::builder(topology).amqp_url(amqp).name("mailer").connect().await?;
/// // A handler that publishes holds a publisher.
/// let publisher = hatchery.publisher();
/// let worker = hatchery.worker().handle("hr-import", move |run: Run| {
///     let publisher = publisher.clone();
///     async move {
///         publisher.publish(NewEvent::new("mail", run.event.payload.clone())).await?;
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

/// Why a connection failed. No message contains a password.
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
    /// The AMQP URL is invalid.
    #[error(transparent)]
    Url(#[from] AmqpUrlError),
    /// The broker cannot be reached, or it refuses the connection.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The Redis URL is invalid; or [`Hatchery::require_register`] found that Redis cannot be reached or refuses the connection.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// How long a program waits for Redis at its start, and in the calls of [`Events`], which read in batches: longer than a publish does.
const PATIENT_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn events(
    topology: Arc<Topology>,
    broker: Arc<dyn Broker>,
    register: RedisRegister,
    records: Arc<Records>,
) -> Events {
    let register = Arc::new(register.with_limit(PATIENT_LIMIT));
    let clock = register.clock();
    Events::telling(topology, broker, register.clone(), register, clock, records)
}

impl fmt::Debug for Hatchery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hatchery").field("topology", &self.topology.name).finish_non_exhaustive()
    }
}

impl Hatchery {
    /// Returns the topology.
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

    /// Returns a publisher.
    ///
    /// All publishers of this topology share one connection, the order of their versions and the limit of unconfirmed
    /// publishes. [`Publisher::in_flight`] gives a publisher its own limit.
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

    /// Returns a worker without handlers. Several workers may run in one process, for the same or for different types.
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
        let clock = register.clock();
        let worker = Worker::new(Arc::clone(&self.topology), self.broker(), register, clock);
        worker.publishing(self.publisher())
    }

    /// Returns an [`Events`], with which to list, cancel and reschedule waiting events.
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
        let records = Arc::clone(self.publisher.records());
        events(Arc::clone(&self.topology), self.broker(), self.register.clone(), records)
    }

    /// Returns a question to the stream of the life of events, which tells what has happened to them.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::BrokerError> {
    /// use futures_util::TryStreamExt as _;
    ///
    /// let failures = hatchery.life_cycle().read().try_filter(|record| {
    ///     std::future::ready(record.transition == hatchery::TransitionName::Failed)
    /// });
    /// let failures: Vec<_> = failures.try_collect().await?;
    /// println!("{} runs have failed", failures.len());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn life_cycle(&self) -> LifeCycleReader {
        LifeCycleReader::new(Arc::clone(&self.broker), Names::new(self.topology.name.clone()).life_cycle())
    }

    /// Checks that Redis answers and accepts this client within ten seconds. If nothing listens there, this fails at once.
    ///
    /// For a program that should fail at its start if Redis is missing. Without this call a worker waits for Redis, and a
    /// publisher publishes without versions.
    ///
    /// # Errors
    /// If Redis does not answer or refuses the client. The error converts into a `ConnectError`.
    ///
    /// ```no_run
    /// # async fn example(builder: hatchery::Builder) -> Result<(), hatchery::ConnectError> {
    /// let hatchery = builder.connect().await?;
    /// hatchery.require_register().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn require_register(&self) -> Result<(), RegisterError> {
        self.register.clone().with_limit(PATIENT_LIMIT).ping().await
    }

    /// Checks that the topology was applied: the broker has the exchange to which events are published.
    ///
    /// For a program that should fail at its start if the topology is missing. A worker checks the objects that it needs.
    ///
    /// # Errors
    /// [`BrokerError::Missing`] if the topology was not applied; another error if the broker does not answer. The error
    /// converts into a `ConnectError`.
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

    /// Checks that the broker takes messages: connects again if the connection is lost, and fails while the broker blocks publishers.
    ///
    /// For a program that has to answer at once: a publish waits up to 30 s for such a broker. RabbitMQ says that it blocks a
    /// connection when something is published on it, so the first publish of an outage is not spared.
    ///
    /// # Errors
    /// [`BrokerError::Blocked`] while the broker is low on memory or disk space; another error if it does not answer.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), Box<dyn std::error::Error>> {
    /// hatchery.require_publishing().await?;
    /// hatchery.publisher().publish(hatchery::NewEvent::new("mail", "{}")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn require_publishing(&self) -> Result<(), BrokerError> {
        self.broker.takes_messages().await
    }

    /// Closes the connections to the broker, within two seconds.
    ///
    /// Afterwards publishes fail. A running worker finishes its runs within its drain limit and ends with an error; the events
    /// of these runs are delivered again. Stop workers and wait for them first.
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
        self.publisher.records().close().await;
        self.broker.close().await;
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::<RabbitMq>::clone(&self.broker)
    }
}

//! The library's front door: a topology, a broker and a Redis make publishers and workers.

use std::sync::Arc;

use crate::{
    adapters::{
        clock::SystemClock,
        rabbitmq::{
            RabbitMq,
            connection::{AmqpUrl, AmqpUrlError},
        },
        redis::RedisRegister,
    },
    domain::spec::Topology,
    flow::{
        publish::{Publisher, VERSION_WAIT},
        shutdown::Worker,
    },
    ports::{Broker, BrokerError, Register, RegisterError},
};

/// A topology with the broker and the Redis that it lives on.
pub struct Hatchery {
    topology: Arc<Topology>,
    broker: Arc<RabbitMq>,
    register: RedisRegister,
    publisher: Publisher,
}

/// Why there is no connection.
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

/// Connects to the broker. Redis is connected to when it is first needed, because publishing needs RabbitMQ alone.
///
/// The name is what the management UI shows for the connections. Must be called within a tokio runtime.
///
/// # Errors
/// When a URL is none, or the broker is away or refuses.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use hatchery::NewEvent;
///
/// let topology = hatchery::read_file("topology.yaml")?;
/// let amqp = "amqp://guest:guest@localhost:5672/";
/// let hatchery = hatchery::connect(topology, amqp, "redis://localhost:6379", "payroll").await?;
/// let published = hatchery.publisher().publish(NewEvent::new("hr-import", "{}").reference("1234")).await?;
/// println!("{}", published.id);
/// hatchery.close().await;
/// # Ok(())
/// # }
/// ```
pub async fn connect(
    topology: Topology,
    amqp_url: &str,
    redis_url: &str,
    name: &str,
) -> Result<Hatchery, ConnectError> {
    let register =
        RedisRegister::new(redis_url, topology.first_name(), &topology.redis)?.with_first_names(topology.first_names());
    let topology = Arc::new(topology);
    let broker = Arc::new(RabbitMq::new(AmqpUrl::new(amqp_url)?, name));
    broker.connect().await?;
    // Who waits for a version that long only also leaves a Redis that does not answer that soon.
    let versions: Arc<dyn Register> = Arc::new(register.clone().with_limit(VERSION_WAIT));
    let publisher = Publisher::new(Arc::clone(&topology), broker.clone(), &versions, Arc::new(SystemClock));
    Ok(Hatchery { topology, broker, register, publisher })
}

impl Hatchery {
    /// The topology that it was connected with.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The publisher. Its clones share the connection, and the order of their versions.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        self.publisher.clone()
    }

    /// A worker without handlers.
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

    /// Makes sure now that Redis answers and lets this client in.
    ///
    /// # Errors
    /// When it does not.
    pub async fn require_register(&self) -> Result<(), RegisterError> {
        self.register.ping().await
    }

    /// Closes the connections to the broker properly. Publishers and workers made from this end with them.
    pub async fn close(self) {
        self.broker.close().await;
    }

    fn broker(&self) -> Arc<dyn Broker> {
        Arc::<RabbitMq>::clone(&self.broker)
    }
}

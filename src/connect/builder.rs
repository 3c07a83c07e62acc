//! The builder of a connection to the broker and to Redis.

use std::{fmt, io, path::PathBuf, sync::Arc, time::Duration};

use super::hatchery::{ConnectError, Hatchery, events};
use crate::{
    adapters::{
        rabbitmq::{
            RabbitMq,
            connection::{AmqpUrl, AmqpUrlError},
        },
        redis::RedisRegister,
        secret_url::UrlText,
        tls::Tls,
    },
    domain::spec::Topology,
    operate::Events,
    ports::{Broker, NamedStates as _, Register, RegisterError, StateKind},
    publish::{publisher::Publisher, versions::VERSION_WAIT},
    records::Records,
};

/// The bounds of `version_wait`. No Redis answers reliably below the lower one, and the upper one keeps timers from overflowing.
const VERSION_WAITS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_hours(1));

/// Connects to a broker and Redis. Created by [`Hatchery::builder`]. Every setting has a default for a developer's machine.
///
/// ```
/// use hatchery::Hatchery;
///
/// let topology = hatchery::read_file("topology.yaml")?;
/// let here = Hatchery::builder(topology).name("payroll");
/// let there = here
///     .clone()
///     .amqp_url("amqp://app:secret@rabbit.internal/prod")
///     .redis_url("redis://redis.internal");
/// // `Debug` leaves out the passwords.
/// assert!(!format!("{there:?}").contains("secret"));
/// # Ok::<(), hatchery::ReadError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Builder {
    topology: Topology,
    amqp_url: UrlText,
    redis_url: UrlText,
    name: String,
    tls: Tls,
    version_wait: Duration,
    quiet: Option<Duration>,
}

impl Hatchery {
    /// Starts a builder for this topology.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use hatchery::{Hatchery, Tls};
    ///
    /// let hatchery = Hatchery::builder(hatchery::read_file("topology.yaml")?)
    ///     .amqp_urls(["amqps://app:secret@rabbit-1/prod", "amqps://app:secret@rabbit-2/prod"])
    ///     .redis_url("rediss://:secret@redis.internal:6380")
    ///     .tls(Tls::default().trust_file("ca.pem")?.identify_files("tls.crt", "tls.key")?)
    ///     .name("payroll")
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(topology: Topology) -> Builder {
        Builder::new(topology)
    }
}

impl Builder {
    pub(super) fn new(topology: Topology) -> Self {
        Self {
            topology,
            amqp_url: "amqp://guest:guest@localhost:5672/".into(),
            redis_url: "redis://localhost:6379".into(),
            name: "hatchery".to_owned(),
            tls: Tls::default(),
            version_wait: VERSION_WAIT,
            quiet: None,
        }
    }

    /// Sets the URL of the broker with its virtual host. Default: `amqp://guest:guest@localhost:5672/`. Several URLs, separated
    /// by commas, name the nodes of one cluster.
    ///
    /// `amqps` uses TLS. The characters `/`, `@` and `:` in a user name, password or virtual host are percent-encoded. A URL
    /// without a path means the virtual host `/`. `?heartbeat=10` sets the heartbeat to ten seconds; the default is twenty.
    ///
    /// ```no_run
    /// # async fn example(topology: hatchery::Topology) -> Result<(), hatchery::ConnectError> {
    /// let hatchery = hatchery::Hatchery::builder(topology)
    ///     .amqp_url("amqps://app:p%40ss@rabbit-1/prod,amqps://app:p%40ss@rabbit-2/prod")
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Do not log the target `lapin` at level `TRACE`: it logs every byte that is sent, including the password.
    pub fn amqp_url(self, url: impl Into<String>) -> Self {
        Self { amqp_url: UrlText::from(url.into()), ..self }
    }

    /// Sets the URL of the broker from a file, which is read again before each connection: a rotated password needs no restart.
    /// The virtual host must stay the same.
    ///
    /// # Errors
    /// When the file cannot be read.
    ///
    /// ```no_run
    /// # async fn example(topology: hatchery::Topology) -> Result<(), Box<dyn std::error::Error>> {
    /// let builder = hatchery::Hatchery::builder(topology)
    ///     .amqp_url_file("/run/secrets/topology/amqp-url")?
    ///     .redis_url_file("/run/secrets/topology/redis-url")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn amqp_url_file(self, path: impl Into<PathBuf>) -> io::Result<Self> {
        Ok(Self { amqp_url: UrlText::in_file(path)?, ..self })
    }

    /// Sets the URLs of a cluster's nodes, all with the same virtual host. Each new connection tries them in turn, and starts at
    /// another node than the one before.
    ///
    /// ```no_run
    /// # async fn example(topology: hatchery::Topology) -> Result<(), hatchery::ConnectError> {
    /// let nodes = (1..=3).map(|node| format!("amqp://app:secret@rabbit-{node}/prod"));
    /// let hatchery = hatchery::Hatchery::builder(topology).amqp_urls(nodes).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn amqp_urls<U: Into<String>>(self, urls: impl IntoIterator<Item = U>) -> Self {
        let urls: Vec<String> = urls.into_iter().map(Into::into).collect();
        Self { amqp_url: UrlText::from(urls.join(",")), ..self }
    }

    /// Sets the URL of the register: one Redis (`redis://`, `rediss://`, `unix://`), the nodes of a Cluster
    /// (`redis-cluster://h1:7000,h2:7000`), or sentinels and the name of their master (`redis-sentinel://s1,s2#mymaster`).
    /// Default: `redis://localhost:6379`. Redis is not used if all types have `register: off`.
    ///
    /// ```no_run
    /// # async fn example(topology: hatchery::Topology) -> Result<(), hatchery::ConnectError> {
    /// let hatchery = hatchery::Hatchery::builder(topology)
    ///     .redis_url("redis-sentinel://sentinel-1,sentinel-2,sentinel-3#mymaster")
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn redis_url(self, url: impl Into<String>) -> Self {
        Self { redis_url: UrlText::from(url.into()), ..self }
    }

    /// Sets the URL of the register from a file, which is read again when Redis cannot be reached or refuses this program.
    ///
    /// # Errors
    /// When the file cannot be read.
    ///
    /// ```no_run
    /// # async fn example(topology: hatchery::Topology) -> std::io::Result<()> {
    /// let builder = hatchery::Hatchery::builder(topology).redis_url_file("/run/secrets/topology/redis-url")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn redis_url_file(self, path: impl Into<PathBuf>) -> io::Result<Self> {
        Ok(Self { redis_url: UrlText::in_file(path)?, ..self })
    }

    /// For the command line: sets both URLs.
    #[doc(hidden)]
    pub fn urls(self, amqp_url: UrlText, redis_url: UrlText) -> Self {
        Self { amqp_url, redis_url, ..self }
    }

    /// For `hatchery-admin`: sets another topology on the same servers.
    #[doc(hidden)]
    pub fn for_topology(self, topology: Topology) -> Self {
        Self { topology, ..self }
    }

    /// For `hatchery-admin`: returns the topology.
    #[doc(hidden)]
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// For `hatchery-admin`: returns the name of the connections.
    #[doc(hidden)]
    #[must_use]
    pub fn connection_name(&self) -> &str {
        &self.name
    }

    /// For `hatchery-admin`: returns the URL of the broker with the TLS settings.
    #[doc(hidden)]
    pub fn amqp(&self) -> Result<AmqpUrl, AmqpUrlError> {
        Ok(AmqpUrl::of(self.amqp_url.clone())?.with_tls(self.tls.clone()))
    }

    /// Sets the name of the connections in the management UI. Default: `hatchery`. The client properties also hold the host
    /// and the process.
    ///
    /// ```no_run
    /// # async fn example(topology: hatchery::Topology) -> Result<(), hatchery::ConnectError> {
    /// let name = format!("payroll {}", env!("CARGO_PKG_VERSION"));
    /// let hatchery = hatchery::Hatchery::builder(topology).name(name).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets how long a publish waits for Redis to give a coalesced event its version. Default: 250 ms.
    ///
    /// After this time the event is published without a version
    /// ([`Published::unversioned`](crate::Published::unversioned)), and older events of its reference may run as well. If
    /// Redis does not answer, a publish waits once more for the same time after the broker's confirm. Values are clamped to
    /// 20 ms and one hour.
    ///
    /// ```no_run
    /// # async fn example(topology: hatchery::Topology) -> Result<(), hatchery::ConnectError> {
    /// use std::time::Duration;
    ///
    /// let builder = hatchery::Hatchery::builder(topology).redis_url("redis://redis.another-region.internal");
    /// let hatchery = builder.version_wait(Duration::from_secs(1)).connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn version_wait(self, wait: Duration) -> Self {
        Self { version_wait: wait.clamp(VERSION_WAITS.0, VERSION_WAITS.1), ..self }
    }

    /// Sets the trusted certificates and the client certificate for `amqps` and `rediss` URLs. Default: the system's trusted
    /// certificates, and no client certificate.
    ///
    /// ```no_run
    /// # async fn example(topology: hatchery::Topology) -> Result<(), Box<dyn std::error::Error>> {
    /// use hatchery::{Hatchery, Tls};
    ///
    /// let tls = Tls::default().trust_file("/etc/payroll/ca.pem")?;
    /// let builder = Hatchery::builder(topology).amqp_url("amqps://rabbit.internal").tls(tls);
    /// let hatchery = builder.connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn tls(self, tls: Tls) -> Self {
        Self { tls, ..self }
    }

    /// For tests: sets after how long without a delivery a worker starts its consumers anew. Default: 30 s.
    #[doc(hidden)]
    pub fn consume_anew_after(self, quiet: Duration) -> Self {
        Self { quiet: Some(quiet), ..self }
    }

    /// Returns an [`Events`] without a connection to the broker. Must be called within a tokio runtime.
    ///
    /// Redis is connected at the first call, and the broker at the first publish. A program that only lists and cancels events
    /// needs no broker.
    ///
    /// # Errors
    /// If a URL is invalid.
    ///
    /// ```no_run
    /// # async fn example(topology: hatchery::Topology) -> Result<(), Box<dyn std::error::Error>> {
    /// use hatchery::{Hatchery, EventSelector};
    ///
    /// let events = Hatchery::builder(topology).redis_url("redis://redis.internal").events()?;
    /// let known = events.show(&EventSelector::reference("hr-import", "1234")).await?;
    /// println!("{} events of employee 1234", known.len());
    /// # Ok(())
    /// # }
    /// ```
    pub fn events(self) -> Result<Events, ConnectError> {
        let amqp = self.amqp()?;
        let register = self.register(&amqp)?;
        let broker = Arc::new(RabbitMq::new(amqp, &self.name));
        let register = register.on_broker(broker.cluster_name());
        let records = Records::start(&self.topology, Arc::clone(&broker) as Arc<dyn Broker>, &self.name);
        Ok(events(Arc::new(self.topology), broker, register, records))
    }

    /// For `hatchery-admin`: returns the register, which connects at its first call.
    #[doc(hidden)]
    pub fn register(&self, amqp: &AmqpUrl) -> Result<RedisRegister, RegisterError> {
        let Self { topology, redis_url, tls, .. } = self;
        let (virtual_host, name) = (amqp.vhost(), topology.first_name());
        let register = RedisRegister::new_with_tls(redis_url.clone(), tls, &virtual_host, name, &topology.redis)?;
        Ok(register.with_first_names(topology.first_names()))
    }

    /// Connects to the broker. Must be called within a tokio runtime.
    ///
    /// Redis is connected later, when it is first used; [`Hatchery::require_register`] waits for it.
    ///
    /// # Errors
    /// If a URL is invalid, the broker cannot be reached, or it refuses the connection.
    ///
    /// ```no_run
    /// # async fn example(builder: hatchery::Builder) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use hatchery::ConnectError;
    ///
    /// // A pod may start before its broker.
    /// let hatchery = loop {
    ///     match builder.clone().connect().await {
    ///         Err(ConnectError::Broker(error)) if error.is_transient() => eprintln!("{error}"),
    ///         connected => break connected?,
    ///     }
    ///     tokio::time::sleep(Duration::from_secs(2)).await;
    /// };
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(self) -> Result<Hatchery, ConnectError> {
        let amqp = self.amqp()?;
        let register = self.register(&amqp)?;
        let Self { topology, name, version_wait, quiet, .. } = self;
        let topology = Arc::new(topology);
        let uses_register = topology.types.values().any(|spec| spec.register);
        let broker = RabbitMq::new(amqp, &name);
        let broker = Arc::new(match quiet {
            Some(quiet) => broker.with_quiet(quiet),
            None => broker,
        });
        let register = register.on_broker(broker.cluster_name());
        // Connect to Redis now: the first publish waits only briefly for Redis, and connecting may take longer. The answer also shows
        // whether the clock of this machine is right. Without one the first publish meets the error again.
        let comparing = async {
            if uses_register {
                register.connect_soon();
                drop(tokio::time::timeout(VERSION_WAIT, register.states(StateKind::Schedule)).await);
            }
        };
        let (connected, ()) = tokio::join!(broker.connect(), comparing);
        connected?;
        // The reply timeout of Redis is the shorter one, so that a silent Redis is reported as such and not as a missing version.
        let limit = version_wait.saturating_sub(Duration::from_millis(10));
        let versions: Arc<dyn Register> = Arc::new(register.clone().with_limit(limit));
        let clock = register.clock();
        let publisher =
            Publisher::waiting(Arc::clone(&topology), broker.clone(), &versions, clock, version_wait, &name);
        Ok(Hatchery { topology, broker, register, publisher })
    }
}

/// Leaves out the passwords of the URLs.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("name", &self.name).field("tls", &self.tls).finish_non_exhaustive()
    }
}

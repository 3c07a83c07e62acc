//! How to connect.

use std::{fmt, sync::Arc, time::Duration};

use super::hatchery::{ConnectError, Hatchery, events};
use crate::{
    adapters::{
        clock::SystemClock,
        rabbitmq::{RabbitMq, connection::AmqpUrl},
        redis::RedisRegister,
        secret_url::UrlText,
        tls::Tls,
    },
    domain::spec::Topology,
    flow::{events::Events, publish::Publisher, versions::VERSION_WAIT},
    ports::{Register, RegisterError},
};

/// Less than that no Redis answers; longer than that nobody wants to wait, and there are times that are too long to be kept.
const VERSION_WAITS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_hours(1));

/// How to connect. What is not said is as on a developer's machine. [`Hatchery::builder`] makes one.
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
/// // Shown without the passwords.
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
    /// Chooses how to connect.
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

    /// The broker, with its virtual host; several URLs with commas between them are the nodes of one cluster, of which any
    /// is as good. At first `amqp://guest:guest@localhost:5672/`.
    ///
    /// `amqps` is with TLS. What a user name, password or virtual host has of `/`, `@` or `:` is percent-encoded;
    /// without a path it is the virtual host `/`. `?heartbeat=10` asks for a heartbeat every ten seconds, instead of
    /// twenty.
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
    /// Keep the log target `lapin` below `TRACE`: that has every byte which is sent, and the password among them.
    pub fn amqp_url(self, url: impl Into<String>) -> Self {
        Self { amqp_url: UrlText::from(url.into()), ..self }
    }

    /// The nodes of a cluster, each by its URL, all with the same virtual host. They are tried in turn, from another
    /// one on each time.
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

    /// Where the register is: one Redis (`redis://`, `rediss://`, `unix://`), the nodes of a Cluster
    /// (`redis-cluster://h1:7000,h2:7000`), or the sentinels that know the master (`redis-sentinel://s1,s2#mymaster`). At
    /// first `redis://localhost:6379`. It is never asked where all types say `register: off`.
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

    /// What the management UI shows for the connections. At first `hatchery`. The host and the process are there too,
    /// among the client properties.
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

    /// How long a publish waits for the version of an event that is coalesced, before it goes without
    /// ([`Published::unversioned`](crate::Published::unversioned)): 20 ms to an hour, whatever is said. At first 250 ms; more
    /// where Redis is far away, or where old events that run too are worse than publishes that take long. A Redis that does
    /// not answer holds a publish up as long once more, after the broker's confirm.
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

    /// Whom to trust, and which certificate to show, where a URL says `amqps` or `rediss`. At first whom the system
    /// trusts, and none.
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

    /// For tests: workers consume anew when nothing has come for this long, instead of 30 s.
    #[doc(hidden)]
    pub fn consume_anew_after(self, quiet: Duration) -> Self {
        Self { quiet: Some(quiet), ..self }
    }

    /// The events alone. Redis is connected to when it is first asked, and the broker when something is first published:
    /// who only looks and cancels needs none. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When a URL is none.
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
        let amqp = AmqpUrl::new(self.amqp_url.secret())?;
        let register = self.register(&amqp)?;
        let broker = Arc::new(RabbitMq::new(amqp.with_tls(self.tls), &self.name));
        let register = register.on_broker(broker.cluster_name());
        Ok(events(Arc::new(self.topology), broker, register))
    }

    fn register(&self, amqp: &AmqpUrl) -> Result<RedisRegister, RegisterError> {
        let Self { topology, redis_url, tls, .. } = self;
        let (virtual_host, name) = (amqp.vhost(), topology.first_name());
        let register = RedisRegister::new_with_tls(redis_url.secret(), tls, &virtual_host, name, &topology.redis)?;
        Ok(register.with_first_names(topology.first_names()))
    }

    /// Connects to the broker. Redis is not waited for; [`Hatchery::require_register`] does. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// When a URL is none, or the broker is away or refuses.
    ///
    /// ```no_run
    /// # async fn example(builder: hatchery::Builder) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use hatchery::ConnectError;
    ///
    /// // A pod that starts before its broker.
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
        let amqp = AmqpUrl::new(self.amqp_url.secret())?;
        let register = self.register(&amqp)?;
        let Self { topology, name, tls, version_wait, quiet, .. } = self;
        let topology = Arc::new(topology);
        // A publisher waits for it but shortly, and a connection may take longer than that.
        if topology.types.values().any(|spec| spec.register) {
            register.connect_soon();
        }
        let broker = RabbitMq::new(amqp.with_tls(tls), &name);
        let broker = Arc::new(match quiet {
            Some(quiet) => broker.with_quiet(quiet),
            None => broker,
        });
        let register = register.on_broker(broker.cluster_name());
        broker.connect().await?;
        // Who waits for a version that long only also leaves a Redis that does not answer that soon; and says so, rather than
        // that nobody has said anything.
        let limit = version_wait.saturating_sub(Duration::from_millis(10));
        let versions: Arc<dyn Register> = Arc::new(register.clone().with_limit(limit));
        let clock = Arc::new(SystemClock);
        let publisher = Publisher::waiting(Arc::clone(&topology), broker.clone(), &versions, clock, version_wait);
        Ok(Hatchery { topology, broker, register, publisher })
    }
}

/// Without the passwords that the URLs may hold.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("name", &self.name).field("tls", &self.tls).finish_non_exhaustive()
    }
}

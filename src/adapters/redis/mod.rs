//! The register in Redis. Each call is one Lua script over a batch, which is called once for each shard.

mod calls;
mod client;
mod clock;
mod index;
mod items;
mod keys;
mod loss;
mod packed;
mod reports;
mod scripts;
mod states;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, Once,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::stream::{self, StreamExt as _};

use self::{
    client::RedisClient,
    clock::{ComparedClock, LastReading},
    keys::Keys,
    loss::{Counters, Loss},
};
pub use self::{client::ServerInfo, clock::ReportedClock};
use crate::{
    adapters::{secret_url::UrlText, tls::Tls},
    domain::{
        register::Owner,
        spec::RedisSpec,
        words::{EventType, Word},
    },
    ports::{Clock, RegisterError},
};

/// The time limit of a call, unless the caller sets another one.
const DEFAULT_LIMIT: Duration = Duration::from_secs(1);

/// The number of shards that are called at a time. Each of these calls may first have to load the script.
const TOGETHER: usize = 128;

/// Returns the name of the cluster that the newest connection to the broker leads to, if the name is known.
type ClusterName = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The register in Redis. Clones share its connections (one, or one for each node of a Cluster), which are opened on first use
/// and again after every loss.
#[derive(Clone)]
pub struct RedisRegister {
    client: Arc<RedisClient>,
    keys: Arc<Keys>,
    backlog_retention: Duration,
    limit: Duration,
    clock: Option<Arc<dyn Clock>>,
    reading: Arc<LastReading>,
    cluster_name: ClusterName,
    counters: Arc<Counters>,
    /// How often Redis was found emptied since [`times_emptied`](crate::ports::Register::times_emptied) was last called.
    emptied: Arc<AtomicU64>,
    loss: Arc<Loss>,
    /// Set once it was logged that the register may be another broker's.
    doubted: Arc<Once>,
}

impl fmt::Debug for RedisRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRegister")
            .field("client", &self.client)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl RedisRegister {
    /// Returns a register that connects at its first call, for publishers: they go on while Redis is down.
    ///
    /// # Errors
    /// When `url` is not the URL of a Redis.
    pub fn new(url: &str, virtual_host: &str, topology: &Word, spec: &RedisSpec) -> Result<Self, RegisterError> {
        Self::new_with_tls(url.into(), &Tls::default(), virtual_host, topology, spec)
    }

    /// Returns a register like [`new`](Self::new), with these TLS settings for the scheme `rediss`. A URL from a file is read
    /// again when Redis cannot be reached or refuses this client.
    ///
    /// # Errors
    /// When `url` is not the URL of a Redis.
    pub fn new_with_tls(
        url: UrlText,
        tls: &Tls,
        virtual_host: &str,
        topology: &Word,
        spec: &RedisSpec,
    ) -> Result<Self, RegisterError> {
        Ok(Self {
            client: Arc::new(RedisClient::new(url, tls)?),
            keys: Arc::new(Keys::new(&spec.prefix, virtual_host, topology.as_str(), spec.shards)),
            backlog_retention: spec.backlog_retention,
            limit: DEFAULT_LIMIT,
            clock: None,
            reading: Arc::default(),
            cluster_name: Arc::new(|| None),
            counters: Arc::new(Counters::new(spec.shards)),
            emptied: Arc::default(),
            loss: Arc::new(Loss::new()),
            doubted: Arc::new(Once::new()),
        })
    }

    /// Lets renamed types keep their keys. The map has the present name of each, and its first name.
    #[must_use]
    pub fn with_first_names(self, first_names: BTreeMap<EventType, EventType>) -> Self {
        let keys = Keys::clone(&self.keys).with_first_names(first_names);
        Self { keys: Arc::new(keys), ..self }
    }

    /// Starts to connect, so that the first call need not wait for the connection. Must be called within a tokio
    /// runtime.
    pub fn connect_soon(&self) {
        self.client.connect_soon();
    }

    /// Returns the same register, with the same connection and another time limit for every call.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Sets the function that returns the broker's cluster name. Each call sends the name, and a register that another
    /// broker uses refuses the call. The name is read for each call, because a new connection may lead to another
    /// broker.
    #[must_use]
    pub fn on_broker(self, cluster_name: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { cluster_name: Arc::new(cluster_name), ..self }
    }

    /// Returns what Redis says of itself.
    ///
    /// # Errors
    /// When Redis does not answer `INFO`, or does not allow it to this user.
    pub async fn server_info(&self) -> Result<ServerInfo, RegisterError> {
        self.client.server_info(self.limit.into()).await
    }

    /// Returns the clock of this machine, which Redis's answers to this register and its clones compare with Redis's clock.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(ComparedClock(Arc::clone(&self.reading)))
    }

    /// Fails if Redis takes no writes, as [`ping`](crate::ports::Register::ping) does. Writes nothing new: to a Redis that was emptied
    /// this is not the first write, which other processes would take for a sign that nothing was lost.
    ///
    /// # Errors
    /// When Redis is unreachable, takes no writes, or refuses the call.
    pub async fn try_write(&self) -> Result<(), RegisterError> {
        self.ask_all_shards(&scripts::TRY_WRITE).await
    }

    /// Returns who uses the register: nobody, one owner, or several if a write reached only some of the shards.
    ///
    /// # Errors
    /// When Redis is unreachable, or refuses the call.
    pub async fn owners(&self) -> Result<BTreeSet<Owner>, RegisterError> {
        let owners = self.own("read", &[]).await?.into_iter();
        Ok(owners.filter(|owner| *owner != Owner::default()).collect())
    }

    /// Sets the owner of the register, whoever used it before.
    ///
    /// # Errors
    /// When Redis is unreachable, or refuses the call. Some of the shards may have been written: writing again does no
    /// harm.
    pub async fn set_owner(&self, owner: &Owner) -> Result<(), RegisterError> {
        let text = |name: &Option<String>| name.clone().unwrap_or_default();
        self.own("take", &[&text(&owner.topology), &text(&owner.cluster_name)]).await.map(drop)
    }

    /// Removes the owner of the register, whoever it is, the lists of the waiting events of these types, and the states of the schedules.
    /// What else there is expires.
    ///
    /// # Errors
    /// When Redis is unreachable, or refuses the call. Some of the shards may have been written: writing again does no
    /// harm.
    pub async fn leave<'t>(&self, types: impl IntoIterator<Item = &'t EventType>) -> Result<(), RegisterError> {
        let types: Vec<&str> = types.into_iter().map(|event_type| self.keys.event_type(event_type)).collect();
        self.own("leave", &types).await.map(drop)
    }

    /// Reads, sets or removes the owner of each shard. Returns the owners before this call.
    async fn own(&self, act: &str, arguments: &[&str]) -> Result<Vec<Owner>, RegisterError> {
        // Without a cluster name, because a register that another broker uses would refuse the call.
        let unnamed = self.clone().on_broker(|| None);
        let shards = (0..self.keys.shards()).map(|shard| {
            let unnamed = &unnamed;
            async move {
                let mut script = unnamed.begin(&scripts::OWN, shard);
                script.arg(act);
                for argument in arguments {
                    script.arg(*argument);
                }
                unnamed.call::<(String, String)>(&script, shard, unnamed.limit.into()).await
            }
        });
        let answers: Vec<_> = stream::iter(shards).buffered(TOGETHER).collect().await;
        let answers: Result<Vec<_>, _> = answers.into_iter().collect();
        let named = |name: String| Some(name).filter(|name| !name.is_empty());
        let owner = |(topology, cluster_name)| Owner { topology: named(topology), cluster_name: named(cluster_name) };
        Ok(answers?.into_iter().flat_map(|(owners, _)| owners).map(owner).collect())
    }

    /// For tests: takes the time from this clock instead of Redis.
    #[doc(hidden)]
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    fn count_emptied(&self) {
        self.client.log_emptied();
        self.emptied.fetch_add(1, Ordering::Relaxed);
    }
}

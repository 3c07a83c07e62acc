//! A topology and the servers that it is on.

use std::{collections::BTreeMap, time::Duration};

use backon::{ExponentialBuilder, Retryable as _};
use hatchery::{
    BrokerError, Builder, ConnectError, Events, Topology,
    internals::{
        compile::{Desired, compile},
        names::{self, is_of_a_node},
        rabbitmq::connection::AmqpUrl,
    },
};

use crate::{
    broker::declare::Declarer,
    error::AdminError,
    live::{Counts, Observed},
    management::{Management as _, ManagementApi, ManagementUrl},
    watch::Watch,
};

/// Pauses between looks for the lock's queue. The nodes of a cluster learn of a new queue one after the other.
const AGAIN: ExponentialBuilder =
    ExponentialBuilder::new().with_min_delay(Duration::from_millis(100)).with_max_times(6);

/// A topology, and the broker and the Redis that it is on. It connects to nothing before its first call.
pub struct Admin {
    pub(crate) builder: Builder,
    pub(crate) desired: Desired,
    pub(crate) broker: AmqpUrl,
    pub(crate) management: ManagementApi,
    /// Whether the user said where Redis is.
    pub(crate) is_redis_given: bool,
}

impl Admin {
    /// Takes the topology and the servers of a connection. The management API is expected at the broker's hosts: port 15672; with
    /// TLS 15671, then 15672.
    ///
    /// # Errors
    /// When the URL of the broker is invalid, or the topology is not safe.
    pub fn new(builder: Builder) -> Result<Self, AdminError> {
        let broker = builder.amqp().map_err(ConnectError::from)?;
        let management = ManagementUrl::of(&broker);
        Self::with(builder, broker, management, true)
    }

    /// Sets the URL of the management API; several are separated by commas. A URL without a user takes that of the broker's URL.
    ///
    /// # Errors
    /// When the URL is invalid.
    pub fn management_url(self, url: &str) -> Result<Self, AdminError> {
        let management = ManagementUrl::new(url, &self.broker)?;
        Self::with(self.builder, self.broker, management, self.is_redis_given)
    }

    /// For the command line: takes the URLs of the broker and of the management API, and whether the user said where Redis is.
    ///
    /// # Errors
    /// When the topology is not safe.
    #[doc(hidden)]
    pub fn with(
        builder: Builder,
        broker: AmqpUrl,
        management: ManagementUrl,
        is_redis_given: bool,
    ) -> Result<Self, AdminError> {
        let management = ManagementApi::new(management, &broker.vhost())?;
        Ok(Self { desired: compile(builder.topology())?, builder, broker, management, is_redis_given })
    }

    pub(crate) fn topology(&self) -> &Topology {
        self.builder.topology()
    }

    /// Returns the counts of the topology's queues, from the statistics of the management API.
    ///
    /// # Errors
    /// When it does not answer.
    #[doc(hidden)]
    pub async fn counts(&self) -> Result<BTreeMap<String, Counts>, AdminError> {
        let mut counts = self.management.counts().await?;
        counts.retain(|name, _| self.desired.queues.iter().any(|queue| queue.name == *name));
        Ok(counts)
    }

    /// Returns the view of events and schedules of this topology. It connects at its first question.
    pub(crate) fn events(&self) -> Result<Events, ConnectError> {
        self.builder.clone().events()
    }

    /// Whether a type of the topology uses the register.
    pub(crate) fn uses_register(&self) -> bool {
        self.topology().types.values().any(|spec| spec.register)
    }

    /// Takes the lock under every name that the topology has had, because somebody who still applies an old file writes to
    /// the same objects. Waits for as long as `patience`.
    pub(crate) async fn lock(&self, patience: Duration, watch: &dyn Watch) -> Result<Declarer, AdminError> {
        let queues: Vec<String> = self.desired.owners().map(names::lock).collect();
        let waiting = |queue: &str| watch.note(&format!("Waiting for another apply or destroy, which holds {queue} …"));
        let lock = Declarer::lock(self.broker.clone(), self.builder.connection_name(), &queues, patience, waiting);
        lock.await.map_err(|error| match error {
            BrokerError::Locked { object } => AdminError::Held(object),
            error => error.into(),
        })
    }

    /// Fails if AMQP and the management API lead to two brokers.
    pub(crate) async fn one_broker(&self, observed: &Observed) -> Result<(), AdminError> {
        one_broker(&self.broker, &self.management, observed, self.builder.connection_name()).await
    }

    /// Fails unless the management API shows the lock's queue, which was declared over AMQP. If a tunnel led to another
    /// broker, queues would be deleted on one broker because they are empty on the other.
    pub(crate) async fn same_broker(&self) -> Result<(), AdminError> {
        let lock = names::lock(&self.desired.owner);
        let look = async || match self.management.observe().await {
            Ok(observed) if observed.queues.iter().any(|live| live.name == lock) => Ok(()),
            Ok(_) => Err(None),
            Err(error) => Err(Some(error)),
        };
        look.retry(AGAIN)
            .when(Option::is_none)
            .await
            .map_err(|error| error.map_or(AdminError::NoLock(lock.clone()), Into::into))
    }
}

/// Fails if AMQP and the management API lead to two brokers: the plan would describe one of them and be carried out on
/// the other. Every node of a named cluster reports the cluster's name, so either URL may lead to a load balancer.
/// Every node of an unnamed cluster reports its own name, and two brokers may have the same one. `same_broker`
/// therefore checks again before a write.
///
/// # Errors
/// When they are two brokers, or one of them does not answer.
#[doc(hidden)]
pub async fn one_broker(
    url: &AmqpUrl,
    management: &ManagementApi,
    observed: &Observed,
    name: &str,
) -> Result<(), AdminError> {
    let spoken = url.ask_identity(name).await?.cluster_name;
    let shown = &observed.cluster_name;
    let is_one = match (&spoken, shown) {
        (Some(spoken), Some(shown)) if spoken != shown && is_of_a_node(spoken) && is_of_a_node(shown) => {
            management.nodes().await?.is_none_or(|nodes| nodes.contains(spoken))
        }
        // Every node of a named cluster reports the same name.
        (spoken, shown) => spoken == shown,
    };
    if is_one {
        return Ok(());
    }
    let name =
        |name: Option<String>| name.map_or_else(|| "a broker without a name".to_owned(), |name| format!("`{name}`"));
    let (spoken, shown) = (name(spoken), name(observed.cluster_name.clone()));
    Err(AdminError::TwoBrokers(format!("{url} is {spoken}, and {} is {shown}", management.shown())))
}

//! What the operations ask beside the publisher and the events. It is a port, so that a topology without servers can be served too.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use hatchery::{BrokerError, Hatchery, LifeCycleRecord, Topology, jiff::Timestamp};
use hatchery_admin::{
    Admin, AdminError, Pause, Paused, Switched, Until, dead_letters::DeliveryLimits, live::Counts, status::Status,
};
use tokio::{
    runtime::Handle,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

/// How long to wait for somebody else who changes the pauses.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the records of a trace may take. Without a filter of the broker every record is read.
const TRACE: Duration = Duration::from_secs(20);
/// How many records a trace has at most.
pub(crate) const RECORDS: usize = 1_000;

/// Whose records a trace has.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Of the event with this id.
    pub id: Option<String>,
    /// Of the events about this object.
    pub reference: Option<String>,
    /// Of this type.
    pub event_type: Option<String>,
    /// Since this time.
    pub since: Option<Timestamp>,
}

/// The records of a trace.
#[derive(Debug, Default)]
pub struct Traced {
    /// The first records.
    pub records: Vec<LifeCycleRecord>,
    /// When the oldest record of the stream was told.
    pub oldest: Option<Timestamp>,
    /// Whether there may be more records.
    pub more: bool,
}

impl Trace {
    /// Whether a record belongs to the trace. What concerns a type as a whole belongs to the trace of a type alone.
    #[must_use]
    pub fn has(&self, record: &LifeCycleRecord) -> bool {
        let is_of_type = match (&self.event_type, &record.event_type) {
            (None, _) => true,
            (Some(asked), Some(has)) => asked == has,
            (Some(_), None) => record.of.as_deref() == Some("everything"),
        };
        is_of_type && (record.is_of_an_event() || (self.id.is_none() && self.reference.is_none()))
    }
}

/// The servers that a topology is on, as the operations ask them.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the topology.
    fn topology(&self) -> &Topology;

    /// Fails if the broker takes no messages.
    async fn require_publishing(&self) -> Result<(), BrokerError>;

    /// Looks at what is wrong, and at how many events are where.
    async fn status(&self) -> Result<Status, AdminError>;

    /// Returns the pauses that last, those of the file included.
    async fn pauses(&self) -> Result<Vec<Pause>, AdminError>;

    /// Pauses a type, a source, a schedule or everything.
    async fn pause(&self, what: Paused, reason: String, until: Option<Until>) -> Result<Switched, AdminError>;

    /// Ends the pause of a type, a source, a schedule or of everything.
    async fn resume(&self, what: Paused) -> Result<Switched, AdminError>;

    /// Returns the queues of letters that the file no longer asks for, and the policies that limit how often a letter may be looked at.
    async fn delivery_limits(&self) -> Result<DeliveryLimits, AdminError>;

    /// Returns what the stream of the life of events has recorded.
    async fn trace(&self, of: Trace) -> Result<Traced, BrokerError>;

    /// Returns the counts of the topology's queues, by their names.
    async fn counts(&self) -> Result<BTreeMap<String, Counts>, AdminError>;
}

/// RabbitMQ and Redis.
pub struct Servers {
    hatchery: Arc<Hatchery>,
    admin: Arc<Admin>,
}

impl Servers {
    /// Takes a connection, and the view of the same servers for people.
    #[must_use]
    pub fn new(hatchery: Arc<Hatchery>, admin: Admin) -> Self {
        Self { hatchery, admin: Arc::new(admin) }
    }

    /// Calls the administration in a thread of its own: the compiler cannot tell that its futures may move between threads.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl AsyncFnOnce(&Admin) -> Result<T, AdminError> + Send + 'static,
    ) -> Result<T, AdminError> {
        let admin = Arc::clone(&self.admin);
        let asked = spawn_blocking(move || Handle::current().block_on(question(&admin))).await;
        // A panic goes on here: there is no answer that would be true.
        asked.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

#[async_trait]
impl Backend for Servers {
    fn topology(&self) -> &Topology {
        self.hatchery.topology()
    }

    async fn require_publishing(&self) -> Result<(), BrokerError> {
        let hatchery = Arc::clone(&self.hatchery);
        // A connection that takes longer to open serves the next request.
        let asked = tokio::spawn(async move { hatchery.require_publishing().await });
        asked.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    async fn status(&self) -> Result<Status, AdminError> {
        self.ask(async |admin| admin.status(&()).await).await
    }

    async fn pauses(&self) -> Result<Vec<Pause>, AdminError> {
        self.ask(Admin::pauses).await
    }

    async fn pause(&self, what: Paused, reason: String, until: Option<Until>) -> Result<Switched, AdminError> {
        self.ask(async move |admin| admin.pause(&[what], &reason, until, PATIENCE, &()).await).await
    }

    async fn resume(&self, what: Paused) -> Result<Switched, AdminError> {
        self.ask(async move |admin| admin.resume(&[what], PATIENCE, &()).await).await
    }

    async fn delivery_limits(&self) -> Result<DeliveryLimits, AdminError> {
        self.ask(async |admin| Ok(admin.delivery_limits().await)).await
    }

    async fn trace(&self, of: Trace) -> Result<Traced, BrokerError> {
        let mut reader = self.hatchery.life_cycle();
        if let Some(since) = of.since {
            reader = reader.since(since);
        }
        if let Some(reference) = &of.reference {
            reader = reader.reference(reference);
        }
        if let Some(id) = &of.id {
            reader = reader.id(id);
        }
        let mut traced = Traced { oldest: reader.oldest().await?.map(|record| record.at), ..Traced::default() };
        let mut reading = Box::pin(reader.read());
        let until = Instant::now() + TRACE;
        loop {
            let Ok(record) = timeout_at(until, reading.try_next()).await else {
                traced.more = true;
                return Ok(traced);
            };
            match record? {
                None => return Ok(traced),
                Some(record) if !of.has(&record) => {}
                Some(_) if traced.records.len() == RECORDS => {
                    traced.more = true;
                    return Ok(traced);
                }
                Some(record) => traced.records.push(record),
            }
        }
    }

    async fn counts(&self) -> Result<BTreeMap<String, Counts>, AdminError> {
        self.ask(Admin::counts).await
    }
}

//! What the operations ask of RabbitMQ and Redis beside the publisher and the events.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use hatchery::{BrokerError, CancellationToken, EventInfo, Hatchery, Topology};
use hatchery_admin::{
    Admin, AdminError, Backend, Pause, Paused, Switched, Until,
    dead_letters::DeliveryLimits,
    live::Counts,
    location::QueueCounts,
    status::Status,
    trace::{Trace, Traced},
};
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// How long to wait for somebody else who changes the pauses.
const PATIENCE: Duration = Duration::from_secs(30);

/// RabbitMQ and Redis.
pub struct Servers {
    hatchery: Arc<Hatchery>,
    admin: Arc<Admin>,
    questions: TaskTracker,
    closed: CancellationToken,
}

impl Servers {
    /// Takes a connection, and the view of the same servers for people.
    #[must_use]
    pub fn new(hatchery: Arc<Hatchery>, admin: Admin) -> Self {
        Self { hatchery, admin: Arc::new(admin), questions: TaskTracker::new(), closed: CancellationToken::new() }
    }

    /// Ends what is being asked, and waits for the end: a question that outlives tokio's runtime panics.
    pub async fn close(&self) {
        self.closed.cancel();
        self.questions.close();
        self.questions.wait().await;
    }

    /// Calls the administration in a thread of its own: the compiler cannot tell that its futures may move between threads.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl AsyncFnOnce(&Admin) -> Result<T, AdminError> + Send + 'static,
    ) -> Result<T, AdminError> {
        let (admin, closed) = (Arc::clone(&self.admin), self.closed.clone());
        let ask = move || Handle::current().block_on(closed.run_until_cancelled(question(&admin)));
        let asked = self.questions.spawn_blocking(ask).await;
        // A panic goes on here: there is no answer that would be true.
        let asked = asked.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        asked.unwrap_or_else(|| Err(BrokerError::Closed.into()))
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
        of.read(self.hatchery.life_cycle()).await
    }

    async fn queue_counts(&self, events: Vec<EventInfo>) -> Result<QueueCounts, AdminError> {
        self.ask(async move |admin| Ok(admin.queue_counts(&events).await)).await
    }

    async fn counts(&self) -> Result<BTreeMap<String, Counts>, AdminError> {
        self.ask(Admin::counts).await
    }
}

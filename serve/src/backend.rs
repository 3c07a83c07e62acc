//! What the operations ask beside the publisher and the events. It is a port, so that a topology without servers can be served too.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery::{BrokerError, Hatchery, Topology};
use hatchery_admin::{Admin, AdminError, status::Status};
use tokio::{runtime::Handle, task::spawn_blocking};

/// The servers that a topology is on, as the operations ask them.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Returns the topology.
    fn topology(&self) -> &Topology;

    /// Fails if the broker takes no messages.
    async fn require_publishing(&self) -> Result<(), BrokerError>;

    /// Looks at what is wrong, and at how many events are where.
    async fn status(&self) -> Result<Status, AdminError>;
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
}

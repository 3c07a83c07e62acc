//! The connection of a look at a queue. Looks share none: RabbitMQ admits a connection to the exclusive queues that it has declared itself,
//! so on a shared one the lock of a queue would admit every look, and would stay after a look that was dropped.

use std::sync::{Arc, Mutex, PoisonError};

use lapin::{
    options::{QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{
    codec,
    connection::{self, NodeConnection},
};
use crate::{domain::names, ports::BrokerError};

/// A connection that the look before has left, for the next one.
#[derive(Clone)]
pub(super) struct Idle {
    link: Arc<Mutex<Option<Arc<NodeConnection>>>>,
    /// Cancelled once this program closes its connections.
    closed: CancellationToken,
}

impl Idle {
    pub(super) fn new(closed: CancellationToken) -> Self {
        Self { link: Arc::default(), closed }
    }

    pub(super) fn take(&self) -> Option<Arc<NodeConnection>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn own(&self, link: Arc<NodeConnection>) -> OwnConnection {
        OwnConnection { link, idle: self.clone(), is_given_back: false }
    }
}

/// The connection of one look. If it is dropped, it is closed: the broker frees the lock, and has the messages of the look again.
pub(super) struct OwnConnection {
    link: Arc<NodeConnection>,
    idle: Idle,
    is_given_back: bool,
}

impl OwnConnection {
    pub(super) fn link(&self) -> Arc<NodeConnection> {
        Arc::clone(&self.link)
    }

    /// Leaves the connection for the next look. It has no lock any more.
    pub(super) fn give_back(mut self) {
        let mut idle = self.idle.link.lock().unwrap_or_else(PoisonError::into_inner);
        if self.link.is_good() && idle.is_none() && !self.idle.closed.is_cancelled() {
            *idle = Some(Arc::clone(&self.link));
            drop(idle);
            self.is_given_back = true;
        }
    }
}

impl Drop for OwnConnection {
    fn drop(&mut self) {
        if self.is_given_back {
            return;
        }
        let link = Arc::clone(&self.link);
        // Without a runtime the program ends, and its connections with it.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { connection::close(&link.connection).await });
        }
    }
}

/// Takes the lock of those who look at the queue. The broker frees it when the connection ends.
pub(super) async fn lock(link: &NodeConnection, queue: &str) -> Result<(), BrokerError> {
    // A refusal closes the channel.
    let channel = link.channel().await?;
    let options = QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
    let declaring = channel.queue_declare(codec::short(&names::look_lock(queue))?, options, FieldTable::default());
    link.answer(&format!("the queue {queue}"), declaring).await.map(drop)
}

/// Frees the lock. Otherwise it ends with its connection.
pub(super) async fn unlock(link: &NodeConnection, queue: &str) -> bool {
    let deleting = async {
        let (channel, lock) = (link.channel().await?, codec::short(&names::look_lock(queue))?);
        link.answer("a lock", channel.queue_delete(lock, QueueDeleteOptions::default())).await
    };
    deleting.await.inspect_err(|error| tracing::debug!(%error, "the lock of {queue} ends with its connection")).is_ok()
}

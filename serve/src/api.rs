//! What all operations share: the connection to the broker and to Redis, and the limits.

use std::{sync::Arc, time::Duration};

use hatchery::{CancellationToken, Events, Hatchery, Publisher};
use hatchery_admin::Admin;
use tokio::{sync::Semaphore, time::timeout};

use crate::{problem::Problem, room::Room, tokens::Tokens};

/// How long the broker may take to say that it takes messages.
const BROKER: Duration = Duration::from_secs(5);

pub(crate) struct Api {
    hatchery: Arc<Hatchery>,
    pub(crate) publisher: Publisher,
    pub(crate) events: Events,
    pub(crate) admin: Admin,
    /// Whom the server answers; without tokens, this machine.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) room: Room,
    /// One look at the broker at a time: each makes it list its queues.
    pub(crate) looks: Semaphore,
    /// Cancelled when the server stops.
    pub(crate) stop: CancellationToken,
}

impl Api {
    pub(crate) fn new(hatchery: Arc<Hatchery>, admin: Admin, tokens: Option<Tokens>, stop: CancellationToken) -> Self {
        let (publisher, events) = (hatchery.publisher(), hatchery.events());
        Self { hatchery, publisher, events, admin, tokens, room: Room::new(), looks: Semaphore::new(1), stop }
    }

    /// Returns the length of the largest payload in bytes.
    pub(crate) fn max_payload(&self) -> usize {
        self.hatchery.topology().max_payload
    }

    /// Fails if the broker takes no messages. Nothing has been sent then.
    pub(crate) async fn require_publishing(&self) -> Result<(), Problem> {
        let hatchery = Arc::clone(&self.hatchery);
        // A connection that takes longer to open serves the next request.
        let asked = tokio::spawn(async move { hatchery.require_publishing().await });
        match timeout(BROKER, asked).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => Err(Problem::for_now(format!("not published: {error}"))),
            Ok(Err(_)) | Err(_) => {
                let limit = BROKER.as_secs();
                Err(Problem::for_now(format!("not published: the broker does not answer within {limit} s")))
            }
        }
    }
}

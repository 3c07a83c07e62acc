//! What all operations share: the connection to the broker and to Redis, and the limits.

use std::{sync::Arc, time::Duration};

use hatchery::{CancellationToken, Events, Publisher};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::{
    backend::Backend,
    problem::Problem,
    room::{Places, Room},
    tokens::{Caller, Tokens},
    told::Changes,
    work::Work,
};

/// How long the broker may take to say that it takes messages.
const BROKER: Duration = Duration::from_secs(5);

/// How long a request waits for the looks before it. One look takes up to twelve seconds.
const TURN: Duration = Duration::from_mins(1);
/// How many requests may read dead letters at a time.
const READERS: usize = 4;

/// How many batches may be under way. Each holds up to 64 MiB: events under way, the longest line, and what is made of it.
const BATCHES: usize = 8;
/// How many may listen to changes.
const LISTENERS: usize = 64;

pub(crate) struct Api {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) publisher: Publisher,
    pub(crate) events: Events,
    /// Whom the server answers; without tokens, this machine.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) room: Room,
    /// One look at the broker at a time: each makes it list its queues.
    pub(crate) looks: Semaphore,
    /// The requests that read dead letters. Each holds some hundred letters at a time.
    pub(crate) letters: Places,
    /// The batches that are under way. Each holds some megabytes, or the longest line, and may last for minutes: so they take no room from
    /// single events.
    pub(crate) batches: Places,
    /// Those who hear of changes.
    pub(crate) listeners: Places,
    pub(crate) changes: Changes,
    /// What requests change. Every operation that changes something does so here.
    pub(crate) work: Work,
    /// Cancelled when the server stops.
    pub(crate) stop: CancellationToken,
}

impl Api {
    pub(crate) fn new(
        publisher: Publisher,
        events: Events,
        backend: Arc<dyn Backend>,
        tokens: Option<Tokens>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            backend,
            publisher,
            events,
            tokens,
            room: Room::new(),
            looks: Semaphore::new(1),
            letters: Places::new(READERS, READERS / 2, "requests for dead letters"),
            batches: Places::new(BATCHES, BATCHES / 2, "batches"),
            listeners: Places::new(LISTENERS, LISTENERS / 2, "listeners"),
            changes: Changes::new(),
            work: Work::default(),
            stop,
        }
    }

    /// Returns the length of the largest payload in bytes.
    pub(crate) fn max_payload(&self) -> usize {
        self.backend.topology().max_payload
    }

    /// Returns whether the caller is one that the server still answers.
    pub(crate) fn knows(&self, caller: &Caller) -> bool {
        match (&self.tokens, &caller.0) {
            (Some(tokens), Some(token)) => tokens.has(token),
            _ => true,
        }
    }

    /// Waits until no other request looks at the broker.
    pub(crate) async fn look(&self) -> Result<SemaphorePermit<'_>, Problem> {
        match timeout(TURN, self.looks.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Problem::full(format!("other requests have looked at the broker for {} s", TURN.as_secs()))),
        }
    }

    /// Fails if the broker takes no messages. Nothing has been sent then.
    pub(crate) async fn require_publishing(&self) -> Result<(), Problem> {
        match timeout(BROKER, self.backend.require_publishing()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Problem::for_now(format!("not published: {error}"))),
            Err(_) => {
                let limit = BROKER.as_secs();
                Err(Problem::for_now(format!("not published: the broker does not answer within {limit} s")))
            }
        }
    }
}

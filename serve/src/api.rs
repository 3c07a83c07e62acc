//! What all operations share: the connection to the broker and to Redis, and the limits.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::body::Bytes;
use hatchery::{CancellationToken, EventInfo, Events, Publisher};
use hatchery_admin::{
    Backend,
    event_view::view,
    location::{KnownEvent, placed},
    status::Status,
};
use serde_json::Value;
use tokio::{
    sync::{Notify, Semaphore, SemaphorePermit, watch},
    time::{Instant, timeout},
};

use crate::{
    lookup::Lookup,
    problem::Problem,
    room::{Places, Room},
    tokens::{Caller, Tokens},
    work::Work,
};

/// How long the broker may take to say that it takes messages.
const BROKER: Duration = Duration::from_secs(5);

/// How long a request waits for the looks before it. One look takes up to twelve seconds.
const TURN: Duration = Duration::from_mins(1);
/// How old a status may be that is answered without another look.
const FRESH: Duration = Duration::from_secs(5);
/// How many requests may ask for the topology's counts, pauses, events and traces at a time.
const ASKING: usize = 32;
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
    pub(crate) lookup: Lookup,
    /// Whom the server answers; without tokens, this machine.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) room: Room,
    /// One look at the broker at a time: each makes it list its queues.
    pub(crate) looks: Semaphore,
    /// The result of the last look at the status.
    last: Mutex<Option<(Instant, Arc<Status>)>>,
    /// The requests that ask the broker or Redis for much.
    pub(crate) asking: Places,
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
            lookup: Lookup::new(events.clone()),
            events,
            tokens,
            room: Room::new(),
            looks: Semaphore::new(1),
            last: Mutex::default(),
            asking: Places::new(ASKING, ASKING / 2, "requests that ask the broker or Redis"),
            letters: Places::new(READERS, READERS / 2, "requests for dead letters"),
            batches: Places::new(BATCHES, BATCHES / 2, "batches"),
            listeners: Places::new(LISTENERS, LISTENERS / 2, "listeners"),
            changes: Changes::default(),
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

    /// Looks at the status. All who ask within five seconds are answered from one look. It has a task of its own: a panic ends it alone.
    pub(crate) async fn status(&self) -> Result<Arc<Status>, Problem> {
        let _turn = self.look().await?;
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, status)) = last.filter(|(at, _)| at.elapsed() < FRESH) {
            return Ok(status);
        }
        let backend = Arc::clone(&self.backend);
        let looked = tokio::spawn(async move { backend.status().await }).await;
        let status = Arc::new(looked.map_err(|_| Problem::for_now("the look at the status has failed"))??);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), Arc::clone(&status)));
        Ok(status)
    }

    /// Returns what is known of events, with their places if these are asked for.
    pub(crate) async fn known(&self, known: Vec<EventInfo>, with_places: bool) -> Result<Vec<KnownEvent>, Problem> {
        if !with_places {
            let view = |event| KnownEvent::Event(Box::new(view(event, self.backend.topology())));
            return Ok(known.iter().map(view).collect());
        }
        let count = || async { Ok::<_, Problem>(self.backend.queue_counts(known.clone()).await?) };
        let placed = placed(&self.events, &known, count).await?;
        Ok(placed.into_iter().map(|placed| KnownEvent::Placed(Box::new(placed))).collect())
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

/// An event of the stream of changes, and what it says without its time.
pub(crate) struct Told {
    pub(crate) event: Bytes,
    pub(crate) says: Value,
}

/// The last status, for those who listen.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) told: watch::Sender<Option<Told>>,
    pub(crate) someone: Notify,
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::atomic::{AtomicU32, Ordering},
    };

    use async_trait::async_trait;
    use hatchery::{BrokerError, EventInfo, Topology, testing::TestHatchery};
    use hatchery_admin::{
        AdminError, Pause, Paused, Switched, Until,
        dead_letters::DeliveryLimits,
        live::Counts,
        location::QueueCounts,
        trace::{Trace, Traced},
    };

    use super::*;

    /// Its first look at the status panics. Nothing else is asked.
    struct Looked(Topology, AtomicU32);

    #[async_trait]
    impl Backend for Looked {
        fn topology(&self) -> &Topology {
            &self.0
        }

        async fn require_publishing(&self) -> Result<(), BrokerError> {
            Ok(())
        }

        async fn status(&self) -> Result<Status, AdminError> {
            assert!(self.1.fetch_add(1, Ordering::SeqCst) > 0, "the first look of the test");
            Ok(Status::default())
        }

        async fn pauses(&self) -> Result<Vec<Pause>, AdminError> {
            Ok(Vec::new())
        }

        async fn pause(&self, _: Paused, _: String, _: Option<Until>) -> Result<Switched, AdminError> {
            unreachable!()
        }

        async fn resume(&self, _: Paused) -> Result<Switched, AdminError> {
            unreachable!()
        }

        async fn delivery_limits(&self) -> Result<DeliveryLimits, AdminError> {
            unreachable!()
        }

        async fn trace(&self, _: Trace) -> Result<Traced, BrokerError> {
            Ok(Traced::default())
        }

        async fn queue_counts(&self, _: Vec<EventInfo>) -> Result<QueueCounts, AdminError> {
            unreachable!()
        }

        async fn counts(&self) -> Result<BTreeMap<String, Counts>, AdminError> {
            Ok(BTreeMap::new())
        }
    }

    /// Returns an API whose looks are counted.
    fn api() -> (Api, Arc<Looked>) {
        let text = "version: 1\nname: t\ntypes: { mail: {} }";
        let topology = hatchery::file::read(text, "topology.yaml").expect("a topology");
        let (test, looked) = (TestHatchery::new(topology.clone()), Arc::new(Looked(topology, AtomicU32::new(0))));
        let (backend, stop) = (Arc::clone(&looked) as _, CancellationToken::new());
        (Api::new(test.publisher(), test.events(), backend, None, stop), looked)
    }

    /// Eight batches take 512 MiB, as much as all other requests together.
    #[tokio::test(start_paused = true)]
    async fn as_many_requests_of_a_kind_are_under_way_as_there_is_memory_for() {
        let (api, _) = api();
        let caller = Caller(None);
        for (places, most) in [(&api.batches, 8), (&api.letters, 4), (&api.asking, 32), (&api.listeners, 64)] {
            let mut taken = Vec::new();
            while let Ok(place) = places.take(&caller).await {
                taken.push(place);
                assert!(taken.len() <= most, "more than {most}");
            }
            assert_eq!(taken.len(), most);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_answers_all_of_five_seconds_and_a_panic_ends_it_alone() {
        let (api, looked) = api();
        assert_eq!(api.status().await.expect_err("a panic").detail(), "the look at the status has failed");
        for looks in [2, 2, 3, 3] {
            api.status().await.expect("a status");
            assert_eq!(looked.1.load(Ordering::SeqCst), looks);
            tokio::time::advance(FRESH / 2).await;
        }
    }
}

//! Counts the messages that are now in the queues in which events may be.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hatchery::{
    EventInfo,
    internals::{
        compile::Desired,
        in_memory::InMemory,
        names::{Names, streams},
        spec::TypeSpec,
    },
};
use tokio::time::timeout;

use crate::{
    admin::Admin,
    broker::look::look,
    error::AdminError,
    live::{Counts, Observed},
    management::Management as _,
    status::counts_in_memory,
};

/// How long the broker may take. The events themselves are from Redis, so a person need not wait longer.
const LIMIT: Duration = Duration::from_secs(5);

/// The counts of queues. A count that is not known is `None`.
///
/// AMQP tells the ready messages of this moment. All else is from the management API, and some seconds old.
#[derive(Default)]
pub struct QueueCounts {
    /// The counts by the queues' names.
    pub counts: BTreeMap<String, Counts>,
    /// The queues that do not exist.
    pub missing: BTreeSet<String>,
    /// The queues that delay events of any type.
    pub timers: Vec<String>,
    /// The messages of each queue of the topology, also of those that have left the file or have a former name. `None` if the
    /// management API does not tell.
    pub owned: Option<BTreeMap<String, Option<u64>>>,
}

impl Admin {
    /// Looks at the queues of these events.
    #[doc(hidden)]
    pub async fn queue_counts(&self, events: &[EventInfo]) -> QueueCounts {
        let (topology, desired) = (self.topology(), &self.desired);
        let names = Names::new(topology.name.clone());
        let owners: Vec<String> = desired.owners().map(|owner| format!("{owner}.")).collect();
        // Streams hold no events.
        let streams: Vec<String> = desired.owners().flat_map(streams).collect();
        let timers = timers(desired, &names);
        let mut queues: BTreeSet<String> = timers.iter().cloned().chain([names.unrouted()]).collect();
        for event_type in events.iter().map(|event| &event.event_type).collect::<BTreeSet<_>>() {
            let retry = topology.types.get(event_type).map(TypeSpec::retry_queues).unwrap_or_default();
            queues.extend([names.processing(event_type), names.dead_letters(event_type)]);
            queues.extend(retry.into_iter().map(|ttl| names.retrying(event_type, ttl)));
        }
        let queues: Vec<String> = queues.into_iter().collect();
        let by_amqp = look(&self.broker, self.builder.connection_name(), &[], &queues);
        let (looked, listed) = tokio::join!(timeout(LIMIT, by_amqp), timeout(LIMIT, self.listed()));
        let mut seen = QueueCounts { timers, ..QueueCounts::default() };
        let mut listed = match listed.map_err(|_| "no answer in time".to_owned()) {
            Ok(Ok(listed)) => {
                let is_own = |name: &String| owners.iter().any(|owner| name.starts_with(owner));
                let own = listed.iter().filter(|(name, _)| is_own(name) && !streams.contains(name));
                seen.owned = Some(own.map(|(name, counts)| (name.clone(), counts.messages)).collect());
                listed
            }
            Ok(Err(error)) => silent(&error.to_string()),
            Err(error) => silent(&error),
        };
        if let Ok(Ok(looked)) = looked {
            seen.missing = looked.missing;
            for (name, counts) in looked.queues {
                let listed = listed.remove(&name).unwrap_or_default();
                seen.counts.insert(name, Counts { messages_ready: counts.messages_ready, ..listed });
            }
        }
        seen
    }

    /// Returns the counts of all queues. Fails if the management API is that of another broker.
    async fn listed(&self) -> Result<BTreeMap<String, Counts>, AdminError> {
        let observed = Observed { cluster_name: self.management.cluster_name().await?, ..Observed::default() };
        let counts = async { Ok(self.management.counts().await?) };
        let (counts, ()) = tokio::try_join!(counts, self.one_broker(&observed))?;
        Ok(counts)
    }
}

impl QueueCounts {
    /// Returns the counts of all queues of a topology in memory.
    pub(crate) fn in_memory(memory: &InMemory) -> Self {
        let counts = counts_in_memory(memory);
        let timers = timers(&memory.desired, &Names::new(memory.topology.name.clone()));
        let owned = Some(counts.iter().map(|(name, counts)| (name.clone(), counts.messages)).collect());
        Self { counts, missing: BTreeSet::new(), timers, owned }
    }
}

/// Returns the queues that delay events of any type.
fn timers(desired: &Desired, names: &Names) -> Vec<String> {
    let retrying = format!("{}.", names.retry());
    let timers = desired.queues.iter().filter(|queue| queue.arguments.contains_key("x-message-ttl"));
    timers.map(|queue| queue.name.clone()).filter(|name| !name.starts_with(&retrying)).collect()
}

fn silent(error: &str) -> BTreeMap<String, Counts> {
    tracing::debug!("the management API tells nothing: {error}");
    BTreeMap::new()
}

impl QueueCounts {
    /// Returns the ready messages of a queue.
    #[must_use]
    pub fn ready(&self, queue: &str) -> Option<u64> {
        if self.missing.contains(queue) { Some(0) } else { self.counts.get(queue)?.messages_ready }
    }

    /// Returns the messages of a queue that consumers hold.
    #[must_use]
    pub fn held(&self, queue: &str) -> Option<u64> {
        if self.missing.contains(queue) { Some(0) } else { self.counts.get(queue)?.messages_unacknowledged }
    }

    /// Returns the messages that have expired in a timer and that no queue has taken yet.
    #[must_use]
    pub fn expired(&self, timer: &str) -> Option<u64> {
        let counts = self.counts.get(timer)?;
        // Only quorum queues count them. A queue whose `messages` are known has been listed.
        counts.messages.map(|_| counts.messages_dlx.unwrap_or_default())
    }

    /// Returns whether all queues of the topology but these are known to be empty.
    #[must_use]
    pub fn are_empty(&self, but: impl Fn(&str) -> bool) -> bool {
        let is_empty = |(queue, messages): (&String, &Option<u64>)| {
            but(queue) || (*messages == Some(0) && self.ready(queue).is_none_or(|ready| ready == 0))
        };
        self.owned.as_ref().is_some_and(|owned| !owned.is_empty() && owned.iter().all(is_empty))
    }

    /// Returns all messages of a timer.
    #[must_use]
    pub fn all(&self, timer: &str) -> Option<u64> {
        if self.missing.contains(timer) {
            return Some(0);
        }
        let counts = self.counts.get(timer)?;
        Some(counts.messages?.max(counts.messages_ready?))
    }
}

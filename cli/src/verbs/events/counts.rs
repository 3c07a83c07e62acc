//! Counts the messages that are now in the queues in which events may be.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use hatchery::{
    EventInfo, Topology,
    internals::{
        compile::compile,
        names::{Names, streams},
        spec::TypeSpec,
    },
};
use hatchery_admin::{
    broker::look::look,
    live::{Counts, Observed},
    management::{Management as _, ManagementApi},
    one_broker,
};
use tokio::time::timeout;

use crate::{
    args::Common,
    connect::{self, told},
};

/// How long the broker may take. The events themselves are from Redis, so a person need not wait longer.
const LIMIT: Duration = Duration::from_secs(5);

/// The counts of queues. A count that is not known is `None`.
///
/// AMQP tells the ready messages of this moment. All else is from the management API, and some seconds old.
#[derive(Default)]
pub(super) struct QueueCounts {
    pub(super) counts: BTreeMap<String, Counts>,
    /// The queues that do not exist.
    pub(super) missing: BTreeSet<String>,
    /// The queues that delay events of any type.
    pub(super) timers: Vec<String>,
    /// The messages of each queue of the topology, also of those that have left the file or have a former name. `None` if the
    /// management API does not tell.
    pub(super) owned: Option<BTreeMap<String, Option<u64>>>,
}

impl QueueCounts {
    /// Looks at the queues of these events.
    pub(super) async fn of(common: &Common, topology: &Topology, events: &[EventInfo]) -> anyhow::Result<Self> {
        let names = Names::new(topology.name.clone());
        let retrying = format!("{}.", names.retry());
        let desired = compile(topology)?;
        let owners: Vec<String> = desired.owners().map(|owner| format!("{owner}.")).collect();
        // Streams hold no events.
        let streams: Vec<String> = desired.owners().flat_map(streams).collect();
        let timers = desired.queues.into_iter().filter(|queue| queue.arguments.contains_key("x-message-ttl"));
        let timers: Vec<String> = timers.map(|queue| queue.name).filter(|name| !name.starts_with(&retrying)).collect();
        let mut queues: BTreeSet<String> = timers.iter().cloned().chain([names.unrouted()]).collect();
        for event_type in events.iter().map(|event| &event.event_type).collect::<BTreeSet<_>>() {
            let retry = topology.types.get(event_type).map(TypeSpec::retry_queues).unwrap_or_default();
            queues.extend([names.processing(event_type), names.dead_letters(event_type)]);
            queues.extend(retry.into_iter().map(|ttl| names.retrying(event_type, ttl)));
        }
        let queues: Vec<String> = queues.into_iter().collect();
        let url = common.amqp_url()?;
        let by_amqp = async { look(&url, &connect::here("topology events"), &[], &queues).await };
        let (looked, listed) = tokio::join!(timeout(LIMIT, by_amqp), timeout(LIMIT, by_management(common)));
        let mut seen = Self { timers, ..Self::default() };
        let mut listed = match listed.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer in time"))) {
            Ok(listed) => {
                let is_own = |name: &String| owners.iter().any(|owner| name.starts_with(owner));
                let own = listed.iter().filter(|(name, _)| is_own(name) && !streams.contains(name));
                seen.owned = Some(own.map(|(name, counts)| (name.clone(), counts.messages)).collect());
                listed
            }
            Err(error) => {
                tracing::debug!("the management API tells nothing: {error:#}");
                BTreeMap::new()
            }
        };
        if let Ok(Ok(looked)) = looked {
            seen.missing = looked.missing;
            for (name, counts) in looked.queues {
                let listed = listed.remove(&name).unwrap_or_default();
                seen.counts.insert(name, Counts { messages_ready: counts.messages_ready, ..listed });
            }
        }
        Ok(seen)
    }

    /// Returns the ready messages of a queue.
    pub(super) fn ready(&self, queue: &str) -> Option<u64> {
        if self.missing.contains(queue) { Some(0) } else { self.counts.get(queue)?.messages_ready }
    }

    /// Returns the messages of a queue that consumers hold.
    pub(super) fn held(&self, queue: &str) -> Option<u64> {
        if self.missing.contains(queue) { Some(0) } else { self.counts.get(queue)?.messages_unacknowledged }
    }

    /// Returns the messages that have expired in a timer and that no queue has taken yet.
    pub(super) fn expired(&self, timer: &str) -> Option<u64> {
        let counts = self.counts.get(timer)?;
        // Only quorum queues count them. A queue whose `messages` are known has been listed.
        counts.messages.map(|_| counts.messages_dlx.unwrap_or_default())
    }

    /// Returns whether all queues of the topology but these are known to be empty.
    pub(super) fn are_empty(&self, but: impl Fn(&str) -> bool) -> bool {
        let is_empty = |(queue, messages): (&String, &Option<u64>)| {
            but(queue) || (*messages == Some(0) && self.ready(queue).is_none_or(|ready| ready == 0))
        };
        self.owned.as_ref().is_some_and(|owned| !owned.is_empty() && owned.iter().all(is_empty))
    }

    /// Returns all messages of a timer.
    pub(super) fn all(&self, timer: &str) -> Option<u64> {
        if self.missing.contains(timer) {
            return Some(0);
        }
        let counts = self.counts.get(timer)?;
        Some(counts.messages?.max(counts.messages_ready?))
    }
}

/// Returns the counts of all queues. Fails if the management API is that of another broker.
async fn by_management(common: &Common) -> anyhow::Result<BTreeMap<String, Counts>> {
    let broker = common.amqp_url()?;
    let management = ManagementApi::new(common.management_url(&broker)?, &broker.vhost())?;
    let observed = Observed { cluster_name: management.cluster_name().await?, ..Observed::default() };
    let (counts, ()) = tokio::try_join!(async { anyhow::Ok(management.counts().await?) }, async {
        one_broker(&broker, &management, &observed, &connect::here("topology events")).await.map_err(told)
    })?;
    Ok(counts)
}

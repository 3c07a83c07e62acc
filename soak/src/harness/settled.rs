//! Reads from Redis whether events are finished. docs/register.md describes the keys.

use hatchery::Topology;
use hatchery_soak::{servers::connect_to_redis, stage::Stage};
use redis::aio::MultiplexedConnection;

/// The length of a lease without the name of its slot. The last byte is the length of that name.
const LEASE_HEAD: usize = 42;
/// The offset of the flags in an event's slot, and the flag of a handled event.
const FLAGS: usize = 17;
const FINISHED: u8 = 1;

/// Reads the slots `e` of events, which compete with nothing.
pub(super) struct Settled {
    connection: MultiplexedConnection,
    /// The part of a key before the type.
    before: String,
}

impl Settled {
    pub(super) async fn connect(stage: &Stage) -> anyhow::Result<Self> {
        Ok(Self { connection: connect_to_redis(&stage.servers.redis).await?, before: register_key(&stage.topology) })
    }

    /// Returns the ids of the events among these that are not finished. Each has its type and its id.
    pub(super) async fn unfinished(
        &mut self,
        events: impl IntoIterator<Item = (&str, &str)>,
    ) -> anyhow::Result<Vec<String>> {
        let (mut asked, mut ids) = (redis::pipe(), Vec::new());
        for (event_type, id) in events {
            asked.get(format!("{}{event_type}:i:{id}", self.before));
            ids.push(id.to_owned());
        }
        if ids.is_empty() {
            return Ok(ids);
        }
        let values: Vec<Option<Vec<u8>>> = asked.query_async(&mut self.connection).await?;
        let is_open = |value: &Option<Vec<u8>>| value.as_deref().and_then(is_finished) != Some(true);
        Ok(ids.into_iter().zip(values).filter(|(_, value)| is_open(value)).map(|(id, _)| id).collect())
    }
}

/// Returns what the keys of the topology in Redis begin with. The soak's own broker has only the default virtual host
/// `/`, which is percent-encoded.
pub(crate) fn register_key(topology: &Topology) -> String {
    format!("{}:{{%2F:{}:0}}:", topology.redis.prefix, topology.name)
}

/// Tells whether the value of an event's key says that the event is finished. Returns `None` for a value that is too
/// short.
fn is_finished(value: &[u8]) -> Option<bool> {
    let rest = value.get(2..)?;
    let lease = if value.get(1) == Some(&1) { LEASE_HEAD + usize::from(*rest.get(LEASE_HEAD - 1)?) } else { 0 };
    // The slot follows its letter, `e`.
    let slot = rest.get(lease + 1..)?;
    Some(slot.get(FLAGS)? & FINISHED != 0)
}

//! Reads from Redis whether events are finished. docs/register.md describes the keys.

use hatchery::Topology;
use redis::aio::MultiplexedConnection;

use crate::servers::connect_to_redis;

/// The length of a lease without the name of its slot. The last byte is the length of that name.
const LEASE_HEAD: usize = 42;
/// The offset of the flags in an event's slot, and the flag of a handled event.
const FLAGS: usize = 17;
const FINISHED: u8 = 1;

/// Reads the slots `e` of events, which compete with nothing.
pub(crate) struct Settled {
    connection: MultiplexedConnection,
    /// The part of a key before the type.
    before: String,
}

impl Settled {
    pub(crate) async fn connect(url: &str, topology: &Topology) -> anyhow::Result<Self> {
        let connection = connect_to_redis(url).await?;
        // The soak's own broker has only the default virtual host `/`, which is percent-encoded in keys.
        let before = format!("{}:{{%2F:{}:0}}:", topology.redis.prefix, topology.name);
        Ok(Self { connection, before })
    }

    /// Returns the events among these that are not finished. Each has its type and its id.
    pub(crate) async fn unfinished<E>(
        &mut self,
        events: Vec<E>,
        type_and_id: impl Fn(&E) -> (String, String),
    ) -> anyhow::Result<Vec<E>> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let mut asked = redis::pipe();
        for event in &events {
            let (event_type, id) = type_and_id(event);
            asked.get(format!("{}{event_type}:i:{id}", self.before));
        }
        let values: Vec<Option<Vec<u8>>> = asked.query_async(&mut self.connection).await?;
        let open = events.into_iter().zip(values);
        Ok(open
            .filter(|(_, value)| value.as_deref().and_then(is_finished) != Some(true))
            .map(|(event, _)| event)
            .collect())
    }
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

//! Reads from Redis whether events are finished. docs/register.md describes the keys.

use std::collections::BTreeSet;

use hatchery::Topology;
use redis::aio::MultiplexedConnection;

use crate::servers::connect_to_redis;

/// The offset of the flags in an event's value, and the flag of a handled event.
const FLAGS: usize = 17;
const FINISHED: u8 = 1;

pub(super) struct Register {
    connection: MultiplexedConnection,
    /// The part of a key before the id.
    before: String,
}

impl Register {
    pub(super) async fn connect(url: &str, topology: &Topology, event_type: &str) -> anyhow::Result<Self> {
        let connection = connect_to_redis(url).await?;
        // The soak's own broker has only the default virtual host `/`, which is percent-encoded in keys.
        let before = format!("{}:{{%2F:{}:0}}:{event_type}:i:", topology.redis.prefix, topology.name);
        Ok(Self { connection, before })
    }

    /// Returns the events among these that are not finished.
    pub(super) async fn unfinished(&mut self, numbers: &BTreeSet<u32>) -> anyhow::Result<BTreeSet<u32>> {
        if numbers.is_empty() {
            return Ok(BTreeSet::new());
        }
        let mut asked = redis::pipe();
        for number in numbers {
            asked.get(format!("{}{number}", self.before));
        }
        let slots: Vec<Option<Vec<u8>>> = asked.query_async(&mut self.connection).await?;
        let finished =
            |slot: Option<Vec<u8>>| slot.is_some_and(|slot| slot.get(FLAGS).is_some_and(|f| f & FINISHED != 0));
        let open = numbers.iter().zip(slots).filter(|(_, slot)| !finished(slot.clone()));
        Ok(open.map(|(number, _)| *number).collect())
    }
}

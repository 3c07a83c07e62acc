//! The number of messages in a queue, as plans show it.

use std::{fmt, time::Duration};

use hatchery::internals::ttl::Ttl;
use schemars::JsonSchema;
use serde::Serialize;

use crate::live::LiveQueue;

/// The number of messages in a queue, as far as the broker shows it. Its statistics are some seconds old, and missing
/// if they are disabled: a missing count is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Held")] // as `topology schema` names it
pub struct MessageCount {
    /// Messages ready for delivery.
    pub ready: Option<u64>,
    /// Messages delivered and not acknowledged.
    pub unacknowledged: Option<u64>,
    /// The TTL of the queue in milliseconds, which is the longest that a message stays in it; `None` if the queue has
    /// no TTL.
    pub at_most_ms: Option<u64>,
}

impl MessageCount {
    /// Returns the numbers of a queue; `None` for a stream, which holds no events.
    #[must_use]
    pub fn of(live: &LiveQueue) -> Option<Self> {
        let (ready, unacknowledged) = (live.messages_ready, live.messages_unacknowledged);
        (!live.is_stream()).then(|| Self { ready, unacknowledged, at_most_ms: live.ttl_millis() })
    }
}

/// `412 ready, 3 unacknowledged, at most 5m`.
impl fmt::Display for MessageCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ready {
            None => f.write_str("ready unknown")?,
            Some(ready) => write!(f, "{ready} ready")?,
        }
        if let Some(unacknowledged @ 1..) = self.unacknowledged {
            write!(f, ", {unacknowledged} unacknowledged")?;
        }
        match self.at_most_ms.and_then(|millis| Ttl::new(Duration::from_millis(millis)).ok()) {
            None => Ok(()),
            Some(ttl) => write!(f, ", at most {ttl}"),
        }
    }
}

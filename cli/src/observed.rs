//! What is on the broker, in the words of its management API.
//!
//! Whatever one version leaves out is unknown here, never a default: a missing count is not 0.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Arguments and definitions as the broker shows them.
pub type Arguments = BTreeMap<String, Value>;

/// One virtual host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// When it was looked at: the counts are as old as that, and some seconds more.
    pub at: Option<Timestamp>,
    /// The broker's version.
    pub version: Option<String>,
    /// The name of its cluster.
    pub cluster_name: Option<String>,
    /// Its exchanges.
    pub exchanges: Vec<LiveExchange>,
    /// Its queues.
    pub queues: Vec<LiveQueue>,
    /// Its bindings.
    pub bindings: Vec<LiveBinding>,
    /// Its policies.
    pub policies: Vec<LivePolicy>,
    /// What an operator sets beside them. Empty too where this user may not see them.
    pub operator_policies: Vec<LivePolicy>,
}

/// An exchange.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct LiveExchange {
    /// Its name; the default exchange has none.
    pub name: String,
    /// `topic`, `fanout`, …
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Whether it survives a restart.
    pub durable: Option<bool>,
    /// Whether it goes with its last binding.
    pub auto_delete: Option<bool>,
    /// Whether clients may not publish to it.
    pub internal: Option<bool>,
    /// Its arguments.
    #[serde(default, deserialize_with = "arguments")]
    pub arguments: Arguments,
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct LiveQueue {
    /// Its name.
    pub name: String,
    /// `quorum`, `classic`, …
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Whether it survives a restart.
    pub durable: Option<bool>,
    /// Whether it goes with its last consumer.
    pub auto_delete: Option<bool>,
    /// Its arguments.
    #[serde(default, deserialize_with = "arguments")]
    pub arguments: Arguments,
    /// `running`, `live`, `minority`, `down`, …
    pub state: Option<String>,
    /// The policy that the broker says applies to it.
    pub policy: Option<String>,
    /// The operator policy that the broker says applies to it.
    pub operator_policy: Option<String>,
    /// Messages that are ready for delivery.
    pub messages_ready: Option<u64>,
    /// Messages that are delivered and not acknowledged.
    pub messages_unacknowledged: Option<u64>,
    /// All messages: ready, delivered, and those that the broker is about to dead-letter.
    pub messages: Option<u64>,
    /// Consumers; known where it was asked for.
    pub consumers: Option<u64>,
}

impl Observed {
    /// The same with what a reading of the statistics says about its queues.
    #[must_use]
    pub fn with_counts(mut self, counts: &BTreeMap<String, Counts>) -> Self {
        for queue in &mut self.queues {
            let Some(counts) = counts.get(&queue.name) else { continue };
            queue.messages = counts.held();
            queue.consumers = counts.consumers;
        }
        self
    }
}

impl LiveQueue {
    /// Whether its node is down. RabbitMQ 3.10 then shows none of the bindings that lead to it (measured), and has them again
    /// with the node.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.state.as_deref() == Some("down")
    }

    /// How long a message waits in it at most, in milliseconds: it is a timer.
    #[must_use]
    pub fn ttl_millis(&self) -> Option<u64> {
        self.arguments.get("x-message-ttl").and_then(Value::as_u64)
    }

    /// An argument that is text.
    #[must_use]
    pub fn text(&self, argument: &str) -> Option<&str> {
        self.arguments.get(argument).and_then(Value::as_str)
    }
}

/// What a queue holds and who consumes it, as a reading of the broker's statistics says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Counts {
    /// All messages, those included that the broker is about to dead-letter.
    pub messages: Option<u64>,
    /// Messages that are ready for delivery.
    pub messages_ready: Option<u64>,
    /// Messages that are delivered and not acknowledged.
    pub messages_unacknowledged: Option<u64>,
    /// Messages on their way to the dead-letter exchange; quorum queues alone have such a way.
    pub messages_dlx: Option<u64>,
    /// Consumers.
    pub consumers: Option<u64>,
}

impl Counts {
    /// How many messages the queue holds in any way; unknown where one of the counts is.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        let parts = self.messages_ready? + self.messages_unacknowledged? + self.messages_dlx.unwrap_or_default();
        Some(self.messages?.max(parts))
    }
}

/// A binding.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LiveBinding {
    /// The exchange that it leads from.
    pub source: String,
    /// Where it leads to.
    pub destination: String,
    /// `queue` or `exchange`.
    pub destination_type: String,
    /// Its pattern.
    pub routing_key: String,
    /// Its arguments.
    #[serde(default, deserialize_with = "arguments")]
    pub arguments: Arguments,
}

/// A policy, or an operator's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct LivePolicy {
    /// Its name.
    pub name: String,
    /// A regular expression on names.
    pub pattern: String,
    /// `all`, `queues`, `exchanges`, `quorum_queues`, …
    #[serde(rename = "apply-to", default)]
    pub apply_to: String,
    /// Of all that match the one with the highest priority applies, alone.
    #[serde(default)]
    pub priority: i64,
    /// What it sets.
    #[serde(default, deserialize_with = "arguments")]
    pub definition: Arguments,
}

/// Erlang has one empty list for both, so an empty object may be written `[]`, or left out as `null`.
fn arguments<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arguments, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Object(map) => map.into_iter().collect(),
        _ => Arguments::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_version_leaves_out_is_unknown() {
        let queue: LiveQueue = serde_json::from_str(r#"{"name": "q", "arguments": [], "x": 1}"#).expect("valid");
        assert_eq!(queue, LiveQueue { name: "q".into(), ..LiveQueue::default() });
    }
}

//! The objects of a broker, as its management API shows them.
//!
//! A field that a RabbitMQ version leaves out is `None` here, never a default: a missing count is not 0.

use std::collections::BTreeMap;

use hatchery::internals::compile::{Argument, Desired, Exchange, OWNER, Policy, Queue, STREAM, Target};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Arguments and definitions as the broker shows them.
pub type Arguments = BTreeMap<String, Value>;

/// Returns the name of the topology that owns an object, by the object's label.
pub(crate) fn label(arguments: &Arguments) -> Option<&str> {
    arguments.get(OWNER).and_then(Value::as_str)
}

/// Whether an object has the label of this topology, under any of its names.
pub(crate) fn is_labelled(desired: &Desired, arguments: &Arguments) -> bool {
    label(arguments).is_some_and(|label| desired.owners().any(|owner| owner == label))
}

/// One virtual host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// When the broker was read. The counts are up to some seconds older.
    pub at: Option<Timestamp>,
    /// The broker's version.
    pub version: Option<String>,
    /// The name of the broker's cluster.
    pub cluster_name: Option<String>,
    /// The exchanges.
    pub exchanges: Vec<LiveExchange>,
    /// The queues.
    pub queues: Vec<LiveQueue>,
    /// The bindings.
    pub bindings: Vec<LiveBinding>,
    /// The policies.
    pub policies: Vec<LivePolicy>,
    /// The operator policies. Also empty if this user may not see them.
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
    /// Whether the broker deletes it with its last binding.
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
    /// Whether the broker deletes it with its last consumer.
    pub auto_delete: Option<bool>,
    /// Its arguments.
    #[serde(default, deserialize_with = "arguments")]
    pub arguments: Arguments,
    /// `running`, `live`, `minority`, `down`, …
    pub state: Option<String>,
    /// The policy that applies to the queue, as the broker says.
    pub policy: Option<String>,
    /// The operator policy that applies to the queue, as the broker says.
    pub operator_policy: Option<String>,
    /// Messages that are ready for delivery.
    pub messages_ready: Option<u64>,
    /// Messages that are delivered and not acknowledged.
    pub messages_unacknowledged: Option<u64>,
    /// All messages: ready, delivered, and those that the broker is about to dead-letter.
    pub messages: Option<u64>,
    /// Number of consumers; known only if the statistics were asked for.
    pub consumers: Option<u64>,
}

impl Observed {
    /// Returns the broker's objects with the queues' counts from a reading of the statistics.
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

/// A broker that has what a file declares, and nothing else. Its queues are empty and have no consumer.
impl From<&Desired> for Observed {
    fn from(there: &Desired) -> Self {
        let live = |arguments: &BTreeMap<String, Argument>| -> Arguments {
            arguments.iter().map(|(name, value)| (name.clone(), value.into())).collect()
        };
        let binding = |source: &str, target: &Target, key: &str| LiveBinding {
            source: source.to_owned(),
            destination: target.name().to_owned(),
            destination_type: if matches!(target, Target::Queue(_)) { "queue" } else { "exchange" }.to_owned(),
            routing_key: key.to_owned(),
            arguments: Arguments::new(),
        };
        let by_name = |queue: &Queue| binding("", &Target::Queue(queue.name.clone()), &queue.name);
        let exchange = |exchange: &Exchange| LiveExchange {
            name: exchange.name.clone(),
            kind: Some("topic".to_owned()),
            durable: Some(true),
            auto_delete: Some(false),
            internal: Some(false),
            arguments: live(&exchange.arguments),
        };
        let queue = |queue: &Queue| LiveQueue {
            name: queue.name.clone(),
            kind: queue.arguments.get("x-queue-type").and_then(Argument::as_text).map(str::to_owned),
            durable: Some(true),
            auto_delete: Some(false),
            arguments: live(&queue.arguments),
            messages_ready: Some(0),
            messages_unacknowledged: Some(0),
            messages: Some(0),
            consumers: Some(0),
            ..LiveQueue::default()
        };
        let policy = |policy: &Policy| LivePolicy {
            name: policy.name.clone(),
            pattern: policy.pattern.clone(),
            apply_to: Policy::APPLY_TO.to_owned(),
            priority: Policy::PRIORITY,
            definition: live(&policy.definition),
        };
        let bindings = there.bindings.iter().map(|it| binding(&it.source, &it.target, &it.key));
        Self {
            exchanges: there.exchanges.iter().map(exchange).collect(),
            queues: there.queues.iter().map(queue).collect(),
            bindings: there.queues.iter().map(by_name).chain(bindings).collect(),
            policies: there.policies.iter().map(policy).collect(),
            ..Self::default()
        }
    }
}

impl LiveQueue {
    /// Returns whether the queue's node is down. RabbitMQ 3.10 then shows none of the bindings that lead to the queue
    /// (measured), and shows them again when the node is back.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.state.as_deref() == Some("down")
    }

    /// Tells whether the queue is a stream. No event passes it, and what it holds is never taken away.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.kind.as_deref().or_else(|| self.text("x-queue-type")) == Some(STREAM)
    }

    /// Returns the number of messages that are lost with the queue. What a stream holds is no event.
    #[must_use]
    pub fn events(&self) -> Option<u64> {
        if self.is_stream() { Some(0) } else { self.messages }
    }

    /// Returns the queue's message TTL in milliseconds; a queue that has one is a timer.
    #[must_use]
    pub fn ttl_millis(&self) -> Option<u64> {
        self.arguments.get("x-message-ttl").and_then(Value::as_u64)
    }

    /// Returns the value of an argument if it is text.
    #[must_use]
    pub fn text(&self, argument: &str) -> Option<&str> {
        self.arguments.get(argument).and_then(Value::as_str)
    }
}

/// The counts of a queue's messages and consumers, from one reading of the broker's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Counts {
    /// All messages, including those that the broker is about to dead-letter.
    pub messages: Option<u64>,
    /// Messages that are ready for delivery.
    pub messages_ready: Option<u64>,
    /// Messages that are delivered and not acknowledged.
    pub messages_unacknowledged: Option<u64>,
    /// Messages on their way to the dead-letter exchange; only quorum queues count them.
    pub messages_dlx: Option<u64>,
    /// Returned messages that a policy with `delayed-retry-type` holds back; only quorum queues of RabbitMQ 4.3 have them.
    pub messages_delayed: Option<u64>,
    /// Number of consumers.
    pub consumers: Option<u64>,
}

impl Counts {
    /// Returns how many messages are ready, or will be once a delayed retry is over.
    #[must_use]
    pub fn waiting(&self) -> Option<u64> {
        self.messages_ready.map(|ready| ready + self.messages_delayed.unwrap_or_default())
    }

    /// Returns how many messages the queue holds in any state, or `None` if a count other than `messages_dlx` is
    /// unknown.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        let parts = self.waiting()? + self.messages_unacknowledged? + self.messages_dlx.unwrap_or_default();
        Some(self.messages?.max(parts))
    }
}

/// A binding.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct LiveBinding {
    /// The exchange that messages come from.
    pub source: String,
    /// The queue or exchange that messages go to.
    pub destination: String,
    /// `queue` or `exchange`.
    pub destination_type: String,
    /// The pattern of routing keys.
    pub routing_key: String,
    /// Its arguments.
    #[serde(default, deserialize_with = "arguments")]
    pub arguments: Arguments,
}

/// A policy or an operator policy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct LivePolicy {
    /// Its name.
    pub name: String,
    /// A regular expression for names of objects.
    pub pattern: String,
    /// `all`, `queues`, `exchanges`, `quorum_queues`, …
    #[serde(rename = "apply-to", default)]
    pub apply_to: String,
    /// Of all matching policies only the one with the highest priority applies.
    #[serde(default)]
    pub priority: i64,
    /// The keys that the policy sets.
    #[serde(default, deserialize_with = "arguments")]
    pub definition: Arguments,
}

/// Reads a JSON object. Erlang has one empty list for objects and arrays, so RabbitMQ may write an empty object as
/// `[]`, or as `null`.
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
    fn a_field_that_a_version_leaves_out_is_unknown() {
        let queue: LiveQueue = serde_json::from_str(r#"{"name": "q", "arguments": [], "x": 1}"#).expect("valid");
        assert_eq!(queue, LiveQueue { name: "q".into(), ..LiveQueue::default() });
    }
}

//! The statistics of a broker, as its management API shows them.
//!
//! The figures are some seconds old. A figure that the broker leaves out is `None`: a missing figure is not 0.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::Value;

use crate::live::Counts;

/// The figures of a queue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Figures {
    /// The messages and consumers.
    #[serde(flatten)]
    pub counts: Counts,
    /// The rate at which the number of messages changes.
    #[serde(default, deserialize_with = "object")]
    pub messages_details: Option<Rate>,
    /// The rates of deliveries and acknowledgements. Missing until a message was published or delivered.
    #[serde(default, deserialize_with = "object")]
    pub message_stats: Option<MessageStats>,
}

/// A rate, a second.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Rate {
    /// The rate.
    pub rate: f64,
}

/// Totals and rates of a queue's messages.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct MessageStats {
    /// All messages that channels have published into the queue. Dead-lettered messages do not count.
    pub publish: Option<u64>,
    /// The rate of acknowledgements.
    #[serde(default, deserialize_with = "object")]
    pub ack_details: Option<Rate>,
}

impl Figures {
    /// Returns how many messages are ready, delivered or held back; without the number of those that are delivered, how many
    /// are ready or held back.
    #[must_use]
    pub fn held(&self) -> Option<u64> {
        let delivered = self.counts.messages_unacknowledged.unwrap_or_default();
        self.counts.waiting().map(|waiting| waiting + delivered)
    }
}

/// A channel, and what has happened on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Channel {
    /// The name of the connection: the addresses of both ends.
    pub connection: String,
    /// The name that the program gave its connection.
    pub program: Option<String>,
    /// Whether the program is a worker or a publisher of hatchery.
    pub is_worker: bool,
    /// The deliveries that wait for their acknowledgement.
    pub held: u64,
    /// The queues that the channel consumes.
    pub queues: Vec<String>,
    /// How many messages were acknowledged up to each time, the newest time first. `None` if the broker keeps no rates.
    pub acknowledged: Option<Vec<Sample>>,
    /// How many messages were delivered up to each time, the newest time first.
    pub delivered: Option<Vec<Sample>>,
}

/// A consumer of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Consumer {
    /// The queue.
    pub queue: String,
    /// The name of its channel.
    pub channel: Option<String>,
    /// The name of its connection: the addresses of both ends.
    pub connection: Option<String>,
    /// The program at the other end. `None` if it is not known.
    pub client: Option<Client>,
    /// The topology whose worker it says it is.
    pub owner: Option<String>,
    /// Why its handler is unavailable, if it is.
    pub unavailable: Option<String>,
    /// Whether it waits behind the single active consumer of its queue.
    pub waits: bool,
}

/// The properties that a program gives its connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client {
    /// The property `product`: that of this library, or a client library.
    pub product: Option<String>,
    /// The name that the program gave its connection.
    pub program: Option<String>,
}

/// A total at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Sample {
    /// The total.
    pub sample: u64,
    /// The time, in milliseconds since 1970.
    pub timestamp: i64,
}

/// An alarm that is in effect on a node. It blocks all publishers of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
pub struct Alarm {
    /// The node.
    pub node: String,
    /// `memory` or `disk`.
    pub resource: String,
}

/// Reads a JSON object, if it is one. Erlang has one empty list for objects and arrays, so RabbitMQ writes an object
/// without members as `[]`.
pub(crate) fn object<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    match Value::deserialize(deserializer)? {
        object @ Value::Object(_) => serde_json::from_value(object).map(Some).map_err(D::Error::custom),
        _ => Ok(None),
    }
}

/// The figures of all queues by name.
pub type QueueFigures = BTreeMap<String, Figures>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_figure_is_unknown() {
        let figures: Figures =
            serde_json::from_str(r#"{"messages": 3, "consumers": 0, "message_stats": []}"#).expect("figures");
        assert_eq!((figures.counts.consumers, figures.held(), figures.message_stats), (Some(0), None, None));
    }

    #[test]
    fn messages_that_a_delayed_retry_holds_back_count() {
        let figures: Figures = serde_json::from_str(
            r#"{"messages": 15, "messages_ready": 0, "messages_unacknowledged": 3, "messages_delayed": 12}"#,
        )
        .expect("figures");
        assert_eq!(figures.held(), Some(15));
    }
}

//! Messages as a release publishes them: read from their queues, and published again.

use std::collections::BTreeMap;

use lapin::{
    BasicProperties,
    message::BasicGetMessage,
    types::{AMQPValue, FieldTable},
};
use serde::{Deserialize, Serialize};

use super::keys::without_digits;
use crate::support::amqp::Amqp;

/// A message in a queue.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Recorded {
    pub(super) queue: String,
    pub(super) key: String,
    pub(super) id: String,
    r#type: String,
    timestamp: u64,
    content_type: String,
    pub(super) headers: BTreeMap<String, Header>,
    pub(super) body: String,
}

/// A value of a header. hatchery writes no others.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Header {
    Text(String),
    Int64(i64),
}

impl Recorded {
    pub(super) fn of(queue: &str, message: &BasicGetMessage) -> Self {
        let properties = &message.properties;
        let headers = properties.headers().as_ref().unwrap().inner();
        // A release may be read on another RabbitMQ, which writes headers of its own.
        let own = headers.iter().filter(|(name, _)| !name.as_str().starts_with("x-"));
        let headers = own.map(|(name, value)| match value {
            AMQPValue::LongString(text) => (name.to_string(), Header::Text(text.to_string())),
            AMQPValue::LongLongInt(number) => (name.to_string(), Header::Int64(*number)),
            other => panic!("{name}: {other:?}"),
        });
        assert_eq!(*properties.delivery_mode(), Some(2));
        Self {
            queue: queue.to_owned(),
            key: message.routing_key.to_string(),
            id: properties.message_id().as_ref().unwrap().to_string(),
            r#type: properties.kind().as_ref().unwrap().to_string(),
            timestamp: properties.timestamp().unwrap(),
            content_type: properties.content_type().as_ref().unwrap().to_string(),
            headers: headers.collect(),
            body: String::from_utf8(message.data.clone()).unwrap(),
        }
    }

    pub(super) async fn publish(&self, amqp: &Amqp, exchange: &str) {
        let mut headers = FieldTable::default();
        for (name, value) in &self.headers {
            let value = match value {
                Header::Text(text) => AMQPValue::LongString(text.as_str().into()),
                Header::Int64(number) => AMQPValue::LongLongInt(*number),
            };
            headers.insert(name.as_str().into(), value);
        }
        let properties = BasicProperties::default()
            .with_message_id(self.id.as_str().into())
            .with_type(self.r#type.as_str().into())
            .with_timestamp(self.timestamp)
            .with_content_type(self.content_type.as_str().into())
            .with_delivery_mode(2)
            .with_headers(headers);
        amqp.publish(exchange, &self.key, properties, self.body.as_bytes()).await;
    }

    /// Returns what has to be the same in each message of this kind.
    pub(super) fn shape(&self) -> String {
        let headers: Vec<String> = self
            .headers
            .iter()
            .map(|(name, value)| match value {
                // Numbers and times differ; their places are the same.
                Header::Text(text) => format!("{name}: text {}", without_digits(text)),
                Header::Int64(_) => format!("{name}: int64"),
            })
            .collect();
        // The place in the ladder depends on the moment.
        let (queue, key) = match self.queue.split_once(".ladder.") {
            Some((topology, _)) => (format!("{topology}.ladder"), self.key.split('.').take(2).collect()),
            None => (self.queue.clone(), self.key.clone()),
        };
        let Self { id, r#type, content_type, body, .. } = self;
        let id = without_digits(id);
        format!("{id} in {queue} with {key}: {type} {content_type} {body}\n  {}", headers.join("\n  "))
    }
}

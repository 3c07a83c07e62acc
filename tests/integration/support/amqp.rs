//! A plain AMQP client, with which tests publish and read messages without the library.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use futures_util::future::join_all;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, Consumer, Queue,
    message::BasicGetMessage,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, BasicQosOptions,
        BasicRejectOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
    },
    types::{AMQPValue, FieldTable},
};
use tokio::time::{Instant, sleep};

use super::broker::{FORWARDED, eventually};

pub(crate) struct Amqp {
    channel: Channel,
    connection: Connection,
}

impl Amqp {
    pub(crate) async fn connect(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Self { channel, connection }
    }

    /// Publishes and waits for the confirm.
    pub(crate) async fn publish(&self, exchange: &str, key: &str, properties: BasicProperties, body: &[u8]) {
        let options = BasicPublishOptions::default();
        let sent = self.channel.basic_publish(exchange.into(), key.into(), options, body, properties).await;
        assert!(sent.unwrap().await.unwrap().is_ack());
    }

    /// Publishes one message per event and waits for the confirms. Each string is both the message id and the body. The
    /// messages enter the queue in this order.
    pub(crate) async fn publish_in_order(&self, exchange: &str, key: &str, events: impl Iterator<Item = String>) {
        let options = BasicPublishOptions::default();
        let mut confirms = VecDeque::new();
        for event in events {
            let properties = BasicProperties::default().with_message_id(event.as_str().into());
            let sent = self.channel.basic_publish(exchange.into(), key.into(), options, event.as_bytes(), properties);
            confirms.push_back(sent.await.unwrap());
            if confirms.len() == 500 {
                assert!(confirms.pop_front().unwrap().await.unwrap().is_ack());
            }
        }
        for confirm in confirms {
            assert!(confirm.await.unwrap().is_ack());
        }
    }

    /// Returns the number of messages that are ready in the queue.
    pub(crate) async fn ready(&self, queue: &str) -> u32 {
        self.declared(queue).await.message_count()
    }

    /// Removes all messages that are ready in the queue.
    pub(crate) async fn purge(&self, queue: &str) {
        self.channel.queue_purge(queue.into(), QueuePurgeOptions::default()).await.unwrap();
    }

    /// Returns the number of consumers of the queue. A quorum queue counts a cancelled consumer until that has settled
    /// its last delivery.
    pub(crate) async fn consumers(&self, queue: &str) -> u32 {
        self.declared(queue).await.consumer_count()
    }

    /// Waits until a worker consumes from this queue.
    pub(crate) async fn consumed(&self, queue: &str) {
        eventually("a worker consumes", async || (self.consumers(queue).await == 1).then_some(())).await;
    }

    async fn declared(&self, queue: &str) -> Queue {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(queue.into(), options, FieldTable::default()).await.unwrap()
    }

    /// Waits until the queue holds exactly this many ready messages twenty times in a row, so that no consumer takes
    /// them. (The number of consumers does not show that.)
    pub(crate) async fn expect_untouched(&self, queue: &str, messages: u32) {
        let mut looks = 0;
        let alone = async || {
            looks = if self.ready(queue).await == messages { looks + 1 } else { 0 };
            (looks == 20).then_some(())
        };
        eventually(&format!("{queue} keeps {messages} ready messages"), alone).await;
    }

    /// Returns those queues that have ready messages, with their number.
    pub(crate) async fn filled(&self, queues: &[String]) -> BTreeMap<String, u32> {
        let looks = queues.iter().map(async |queue| (queue.clone(), self.ready(queue).await));
        join_all(looks).await.into_iter().filter(|(_, ready)| *ready > 0).collect()
    }

    /// Waits until all these queues are empty thirty times in a row: a single look may miss a message that moves from
    /// one queue to another.
    pub(crate) async fn expect_empty(&self, queues: &[String]) {
        let (mut looks, mut left) = (0, BTreeMap::new());
        let limit = Instant::now() + FORWARDED;
        while looks < 30 {
            let filled = self.filled(queues).await;
            looks = if filled.is_empty() { looks + 1 } else { 0 };
            left = if filled.is_empty() { left } else { filled };
            assert!(
                Instant::now() < limit,
                "the queues were not empty thirty times in a row within {FORWARDED:?}; last seen: {left:?}"
            );
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Takes the next message out of a queue. Returns `None` if the queue is empty.
    pub(crate) async fn get(&self, queue: &str) -> Option<BasicGetMessage> {
        let message = self.channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap()?;
        message.ack(BasicAckOptions::default()).await.unwrap();
        Some(message)
    }

    /// Consumes a queue, and acknowledges nothing for as long as the consumer lives.
    pub(crate) async fn hold(&self, queue: &str, prefetch: u16) -> Consumer {
        self.hold_as(queue, prefetch, FieldTable::default()).await
    }

    /// Consumes a queue with these arguments, and acknowledges nothing. The messages are back when the consumer is dropped.
    pub(crate) async fn hold_as(&self, queue: &str, prefetch: u16, arguments: FieldTable) -> Consumer {
        let channel = self.connection.create_channel().await.unwrap();
        channel.basic_qos(prefetch, BasicQosOptions::default()).await.unwrap();
        channel.basic_consume(queue.into(), "".into(), BasicConsumeOptions::default(), arguments).await.unwrap()
    }

    /// Waits for a message in a queue and takes it out.
    pub(crate) async fn take(&self, queue: &str) -> BasicGetMessage {
        eventually(&format!("{queue} has a message"), async || self.get(queue).await).await
    }

    /// Waits for a message in a queue and rejects it without requeueing, so that the broker itself dead-letters it.
    pub(crate) async fn reject(&self, queue: &str) {
        let get = async || self.channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap();
        let message = eventually(&format!("{queue} has a message"), get).await;
        message.acker.reject(BasicRejectOptions { requeue: false }).await.unwrap();
    }

    /// Takes the first message of a queue and puts it back, this many times, as if that many workers had died while
    /// they held it.
    pub(crate) async fn requeue_first(&self, queue: &str, times: usize) {
        for _ in 0..times {
            let get = async || self.channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap();
            let message = eventually(&format!("{queue} has a message"), get).await;
            // `basic.reject` counts towards the delivery limit in every version of RabbitMQ, which `basic.nack` does
            // not.
            message.acker.reject(BasicRejectOptions { requeue: true }).await.unwrap();
        }
    }

    /// Holds the lock of this name, an exclusive queue, until the connection ends.
    pub(crate) async fn lock(&self, name: &str) {
        let exclusive = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(name.into(), exclusive, FieldTable::default()).await.unwrap();
    }

    pub(crate) async fn delete_queue(&self, queue: &str) {
        self.channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
    }
}

pub(crate) fn header<'a>(message: &'a BasicGetMessage, name: &str) -> Option<&'a AMQPValue> {
    message.properties.headers().as_ref()?.inner().get(name)
}

/// Returns a header that is text or a whole number, as text.
pub(crate) fn shown(message: &BasicGetMessage, name: &str) -> Option<String> {
    match header(message, name)? {
        AMQPValue::LongString(text) => Some(text.to_string()),
        AMQPValue::LongLongInt(number) => Some(number.to_string()),
        other => panic!("{name}: {other:?}"),
    }
}

/// Returns properties that have these headers and nothing else.
pub(crate) fn headers(headers: &[(&str, AMQPValue)]) -> BasicProperties {
    let mut table = FieldTable::default();
    for (name, value) in headers {
        table.insert((*name).into(), value.clone());
    }
    BasicProperties::default().with_headers(table)
}

pub(crate) fn long(text: impl AsRef<[u8]>) -> AMQPValue {
    AMQPValue::LongString(text.as_ref().to_vec().into())
}

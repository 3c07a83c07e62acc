//! Access to the broker's queues without hatchery's own code.

use std::future::ready;

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hatchery::internals::{compile, rabbitmq::connection::AmqpUrl};
use hatchery_soak::stage::Stage;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection,
    message::Delivery,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
        ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
    },
    types::{AMQPValue, FieldTable},
};

/// How many messages are under way at a time.
const WINDOW: u16 = 1_000;

/// A message to publish.
pub(crate) struct Message {
    pub(crate) key: String,
    pub(crate) properties: BasicProperties,
    pub(crate) body: Vec<u8>,
}

impl Message {
    /// A persistent message with its number as the id.
    pub(crate) fn new(key: &str, number: u32, body: Vec<u8>) -> Self {
        let properties = BasicProperties::default().with_message_id(number.to_string().into()).with_delivery_mode(2);
        Self { key: key.to_owned(), properties, body }
    }

    /// Adds what a publisher of events adds.
    pub(crate) fn of_type(mut self, event_type: &str, headers: FieldTable) -> Self {
        self.properties = self
            .properties
            .with_content_type("application/json".into())
            .with_type(event_type.into())
            .with_headers(headers);
        self
    }
}

/// Publishes messages with confirms, many at a time. Each is made when its turn comes.
pub(crate) async fn publish(
    channel: &Channel,
    exchange: &str,
    messages: impl Iterator<Item = Message>,
) -> anyhow::Result<()> {
    let send = async |Message { key, properties, body }| confirmed(channel, exchange, &key, properties, &body).await;
    stream::iter(messages).map(send).buffered(WINDOW.into()).try_for_each(|()| ready(Ok(()))).await
}

async fn confirmed(
    channel: &Channel,
    exchange: &str,
    key: &str,
    properties: BasicProperties,
    body: &[u8],
) -> anyhow::Result<()> {
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish(exchange.into(), key.into(), options, body, properties).await?;
    ensure!(matches!(sent.await?, Confirmation::Ack(_)), "{exchange} did not confirm a message");
    Ok(())
}

pub(crate) struct Queues {
    connection: Connection,
    /// All queues of the topology. Its streams hold no events.
    pub(crate) all: Vec<String>,
    /// The queues that lead to a worker: all but the dead-letter queues and `unrouted`.
    pub(crate) ways: Vec<String>,
}

impl Queues {
    pub(crate) async fn connect(stage: &Stage) -> anyhow::Result<Self> {
        let connection = AmqpUrl::new(&stage.servers.amqp)?.connect("soak queues").await?;
        let queues = compile::compile(&stage.topology)?.queues.into_iter().filter(|queue| !queue.is_stream());
        let all: Vec<String> = queues.map(|queue| queue.name).collect();
        let rests = |name: &String| name.contains(".dead-letter.") || name.ends_with(".unrouted");
        let ways = all.iter().filter(|name| !rests(name)).cloned().collect();
        Ok(Self { connection, all, ways })
    }

    /// Returns whether a message is in a queue that leads to a worker, but these.
    pub(crate) async fn are_busy(&self, but: &[String]) -> anyhow::Result<bool> {
        let queues: Vec<String> = self.ways.iter().filter(|name| !but.contains(name)).cloned().collect();
        Ok(self.ready(&queues).await? > 0)
    }

    /// Returns how many messages are ready in all of these queues together.
    pub(crate) async fn ready(&self, queues: &[String]) -> anyhow::Result<u64> {
        let channel = self.connection.create_channel().await?;
        let mut ready = 0;
        for queue in queues {
            ready += u64::from(declared(&channel, queue).await?.message_count());
        }
        close(&channel).await?;
        Ok(ready)
    }

    pub(crate) async fn delete(&self, queue: &str) -> anyhow::Result<()> {
        let channel = self.connection.create_channel().await?;
        channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await?;
        close(&channel).await
    }

    /// Declares a durable quorum queue, as somebody else would.
    pub(crate) async fn declare(&self, queue: &str) -> anyhow::Result<()> {
        let channel = self.connection.create_channel().await?;
        declare(&channel, queue, FieldTable::default()).await?;
        close(&channel).await
    }

    /// Publishes messages with confirms.
    pub(crate) async fn publish(&self, exchange: &str, messages: impl Iterator<Item = Message>) -> anyhow::Result<()> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        publish(&channel, exchange, messages).await?;
        close(&channel).await
    }

    /// Removes all ready messages of a queue, and returns their ids and reasons.
    pub(crate) async fn reasons(&self, queue: &str) -> anyhow::Result<Vec<(String, Option<String>)>> {
        self.each(queue, async |delivery| {
            let headers = delivery.properties.headers().as_ref();
            let reason = headers.and_then(|headers| match headers.inner().get("reason")? {
                AMQPValue::LongString(text) => Some(text.to_string()),
                _ => None,
            });
            Ok((id_of(delivery)?, reason))
        })
        .await
    }

    /// Removes all ready messages of these queues, one queue after the other. Returns their number.
    pub(crate) async fn purge(&self, queues: &[String]) -> anyhow::Result<u64> {
        let channel = self.connection.create_channel().await?;
        let mut purged = 0;
        for queue in queues {
            purged += u64::from(channel.queue_purge(queue.as_str().into(), QueuePurgeOptions::default()).await?);
        }
        close(&channel).await?;
        Ok(purged)
    }

    /// Moves all ready messages of a queue to an exchange, each with its own routing key, as a shovel does: publish,
    /// confirm, acknowledge. Returns the message ids.
    pub(crate) async fn shovel(&self, queue: &str, exchange: &str) -> anyhow::Result<Vec<String>> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let ids = self.each(queue, async |delivery| {
            let (key, properties) = (delivery.routing_key.as_str(), delivery.properties.clone());
            confirmed(&channel, exchange, key, properties, &delivery.data).await?;
            id_of(delivery)
        });
        let ids = ids.await?;
        close(&channel).await?;
        Ok(ids)
    }

    /// Removes all ready messages of a queue, and returns their ids.
    pub(crate) async fn drain(&self, queue: &str) -> anyhow::Result<Vec<String>> {
        self.each(queue, async |delivery| id_of(delivery)).await
    }

    /// Calls `act` for all ready messages, many at a time, and acknowledges each. Returns what `act` has returned.
    async fn each<T>(&self, queue: &str, act: impl AsyncFn(&Delivery) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
        let channel = self.connection.create_channel().await?;
        let ready = declared(&channel, queue).await?.message_count();
        channel.basic_qos(WINDOW, BasicQosOptions::default()).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let consumer = channel.basic_consume(queue.into(), "".into(), options, arguments).await?;
        let (count, tag) = (usize::try_from(ready)?, consumer.tag());
        let act = &act;
        let acts = consumer.take(count).map(|delivery| async move {
            let delivery = delivery?;
            let answer = act(&delivery).await?;
            delivery.ack(BasicAckOptions::default()).await?;
            anyhow::Ok(answer)
        });
        let answers = acts.buffered(WINDOW.into()).try_collect().await?;
        // RabbitMQ forgets acknowledgements that it holds back when the channel closes (see the broker adapter's looks).
        channel.basic_cancel(tag, BasicCancelOptions::default()).await?;
        declared(&channel, queue).await?;
        close(&channel).await?;
        Ok(answers)
    }
}

/// Declares a durable quorum queue.
pub(crate) async fn declare(channel: &Channel, queue: &str, mut arguments: FieldTable) -> lapin::Result<()> {
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), options, arguments).await.map(drop)
}

fn id_of(delivery: &Delivery) -> anyhow::Result<String> {
    Ok(delivery.properties.message_id().as_ref().context("a message without an id")?.to_string())
}

async fn declared(channel: &Channel, queue: &str) -> anyhow::Result<lapin::Queue> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    Ok(channel.queue_declare(queue.into(), options, FieldTable::default()).await?)
}

async fn close(channel: &Channel) -> anyhow::Result<()> {
    Ok(channel.close(200, "done".into()).await?)
}

//! Access to the broker's queues without hatchery's own code.

use std::{cell::RefCell, collections::VecDeque};

use anyhow::{Context as _, ensure};
use futures_util::StreamExt as _;
use hatchery::internals::rabbitmq::connection::AmqpUrl;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection,
    message::Delivery,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
        ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions, QueuePurgeOptions,
    },
    types::{AMQPValue, FieldTable, ShortString},
};

/// How many messages are under way at a time.
pub(crate) const WINDOW: u16 = 1_000;

pub(crate) struct Queues {
    connection: Connection,
}

impl Queues {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        Ok(Self { connection: AmqpUrl::new(url)?.connect("soak queues").await? })
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
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        channel.queue_declare(queue.into(), options, arguments).await?;
        close(&channel).await
    }

    /// Sends messages to a queue with confirms, each with its number as the id.
    pub(crate) async fn feed(&self, queue: &str, messages: impl Iterator<Item = (u32, String)>) -> anyhow::Result<()> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let mut unconfirmed = VecDeque::new();
        for (number, body) in messages {
            let (to, options) = (ShortString::from(queue), BasicPublishOptions::default());
            let properties =
                BasicProperties::default().with_message_id(number.to_string().into()).with_delivery_mode(2);
            unconfirmed.push_back(channel.basic_publish("".into(), to, options, body.as_bytes(), properties).await?);
            if unconfirmed.len() >= WINDOW.into()
                && let Some(sent) = unconfirmed.pop_front()
            {
                ensure!(matches!(sent.await?, Confirmation::Ack(_)), "a message was not confirmed");
            }
        }
        for sent in unconfirmed {
            ensure!(matches!(sent.await?, Confirmation::Ack(_)), "a message was not confirmed");
        }
        close(&channel).await
    }

    /// Removes all ready messages of a queue, and returns their ids and reasons.
    pub(crate) async fn reasons(&self, queue: &str) -> anyhow::Result<Vec<(String, Option<String>)>> {
        let letters = RefCell::new(Vec::new());
        self.each(queue, async |delivery| {
            let headers = delivery.properties.headers().as_ref();
            let reason = headers.and_then(|headers| match headers.inner().get("reason")? {
                AMQPValue::LongString(text) => Some(text.to_string()),
                _ => None,
            });
            letters.borrow_mut().push((id_of(delivery)?, reason));
            Ok(())
        })
        .await?;
        Ok(letters.into_inner())
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
        let ids = RefCell::new(Vec::new());
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let to = ShortString::from(exchange);
        self.each(queue, async |delivery| {
            let (key, options) = (delivery.routing_key.clone(), BasicPublishOptions::default());
            let properties = delivery.properties.clone();
            let sent = channel.basic_publish(to.clone(), key, options, &delivery.data, properties).await?;
            ensure!(matches!(sent.await?, Confirmation::Ack(_)), "{exchange} did not confirm a moved message");
            ids.borrow_mut().push(id_of(delivery)?);
            Ok(())
        })
        .await?;
        close(&channel).await?;
        Ok(ids.into_inner())
    }

    /// Removes all ready messages of a queue, and returns their ids.
    pub(crate) async fn drain(&self, queue: &str) -> anyhow::Result<Vec<String>> {
        let ids = RefCell::new(Vec::new());
        self.each(queue, async |delivery| {
            ids.borrow_mut().push(id_of(delivery)?);
            Ok(())
        })
        .await?;
        Ok(ids.into_inner())
    }

    /// Calls `act` for all ready messages, many at a time, and acknowledges each.
    async fn each(&self, queue: &str, act: impl AsyncFn(&Delivery) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let channel = self.connection.create_channel().await?;
        let ready = declared(&channel, queue).await?.message_count();
        channel.basic_qos(WINDOW, BasicQosOptions::default()).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let consumer = channel.basic_consume(queue.into(), "".into(), options, arguments).await?;
        let (count, tag) = (usize::try_from(ready)?, consumer.tag());
        let act = &act;
        let mut acts = consumer
            .take(count)
            .map(|delivery| async move {
                let delivery = delivery?;
                act(&delivery).await?;
                delivery.ack(BasicAckOptions::default()).await?;
                anyhow::Ok(())
            })
            .buffered(WINDOW.into());
        while let Some(done) = acts.next().await {
            done?;
        }
        // RabbitMQ forgets acknowledgements that it holds back when the channel closes (see the broker adapter's looks).
        channel.basic_cancel(tag, BasicCancelOptions::default()).await?;
        declared(&channel, queue).await?;
        close(&channel).await
    }
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

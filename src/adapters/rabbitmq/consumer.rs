//! Consuming with manual acknowledgements.

use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::{
    Channel, Consumer,
    options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
    types::{FieldTable, ShortString},
};

use super::{codec, connection::AmqpUrl, receipts::Answers, unreadable::Suspects};
use crate::ports::{BrokerError, Deliveries, Delivery, Order};

pub(super) async fn consume(
    url: &AmqpUrl,
    channel: Channel,
    queue: &str,
    (prefetch, order): (u16, Order),
    suspects: &Suspects,
) -> Result<Box<dyn Deliveries>, BrokerError> {
    let consumer = begin(&channel, queue, prefetch).await.map_err(|error| {
        suspects.note(queue, &error);
        url.error(&error, &format!("the queue {queue}"))
    })?;
    let answers = Answers::start(channel.clone(), prefetch);
    Ok(Box::new(Queue {
        channel,
        consumer,
        answers,
        name: queue.to_owned(),
        order,
        suspects: suspects.clone(),
        cancelled: false,
        ended: false,
    }))
}

pub(super) async fn begin(channel: &Channel, queue: &str, prefetch: u16) -> lapin::Result<Consumer> {
    // Before consuming: lapin's buffer of deliveries has no bound of its own.
    channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    // The connection's name says who it is, and may be longer than a tag.
    let tag = uuid::Uuid::now_v7().simple().to_string();
    let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
    channel.basic_consume(queue.into(), tag.into(), options, arguments).await
}

struct Queue {
    channel: Channel,
    consumer: Consumer,
    answers: Answers,
    name: String,
    order: Order,
    suspects: Suspects,
    /// By us.
    cancelled: bool,
    ended: bool,
}

#[async_trait]
impl Deliveries for Queue {
    async fn next(&mut self) -> Option<Delivery> {
        if self.ended {
            return None;
        }
        match self.consumer.next().await {
            Some(Ok(mut received)) => {
                let message = codec::incoming(&mut received);
                let redelivered = received.redelivered;
                let receipt = self.answers.receipt(received.delivery_tag, received.acker);
                return Some(Delivery { message, redelivered, receipt });
            }
            Some(Err(error)) => {
                self.suspects.note(&self.name, &error);
                tracing::warn!(%error, "consuming {} broke off", self.name);
            }
            None if self.cancelled => tracing::debug!("consuming {} has ended", self.name),
            None => tracing::warn!(
                "the broker has cancelled the consumer of {}: the queue was deleted, or a delivery was not acknowledged in \
                 time",
                self.name
            ),
        }
        self.ended = true;
        None
    }

    async fn cancel(&mut self) {
        self.cancelled = true;
        let cancelled = self.channel.basic_cancel(self.consumer.tag(), BasicCancelOptions::default()).await;
        if let Err(error) = cancelled {
            tracing::debug!(%error, "cancelling the consumer of {}", self.name);
            // The channel is gone, and with it every delivery that was not read yet.
            self.ended = true;
        }
    }

    async fn close(mut self: Box<Self>) {
        self.ended = true;
        if let Err(error) = self.channel.close(200, ShortString::from("done")).await {
            tracing::debug!(%error, "closing the channel of {}", self.name);
        }
    }
}

/// lapin cancels a consumer that is dropped, and then the next active consumer would be given what comes after the
/// deliveries that this one holds. With its channel they go back first.
impl Drop for Queue {
    fn drop(&mut self) {
        if self.order == Order::Any || self.ended {
            return;
        }
        let (channel, consumer) = (self.channel.clone(), self.consumer.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = channel.close(200, ShortString::from("done")).await {
                    tracing::debug!(%error, "closing a channel");
                }
                drop(consumer);
            });
        }
    }
}

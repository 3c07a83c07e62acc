//! Consuming with manual acknowledgements.

use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::{
    Channel, Consumer, message,
    options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    types::FieldTable,
};

use super::{codec, connection::AmqpUrl, unreadable::Suspects};
use crate::ports::{BrokerError, Deliveries, Delivery, Receipt};

pub(super) async fn consume(
    url: &AmqpUrl,
    channel: Channel,
    queue: &str,
    prefetch: u16,
    suspects: &Suspects,
) -> Result<Box<dyn Deliveries>, BrokerError> {
    let consumer = begin(&channel, queue, prefetch).await.map_err(|error| {
        suspects.note(queue, &error);
        url.error(&error, &format!("the queue {queue}"))
    })?;
    Ok(Box::new(Queue {
        channel,
        consumer,
        name: queue.to_owned(),
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

/// A delivery as the flow knows it, with a receipt made from its own tag.
pub(super) fn delivery<R: Receipt + 'static>(
    mut delivery: message::Delivery,
    channel: &Channel,
    receipt: impl FnOnce(Tag) -> Box<R>,
) -> Delivery {
    let message = codec::incoming(&mut delivery);
    // A channel closes with its last owner, and takes the deliveries back that are still being worked on.
    let receipt = receipt(Tag { delivery, _channel: channel.clone() });
    Delivery { message, receipt }
}

struct Queue {
    channel: Channel,
    consumer: Consumer,
    name: String,
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
            Some(Ok(received)) => return Some(delivery(received, &self.channel, Box::new)),
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
}

pub(super) struct Tag {
    delivery: message::Delivery,
    _channel: Channel,
}

#[async_trait]
impl Receipt for Tag {
    async fn acknowledge(self: Box<Self>) {
        if let Err(error) = self.delivery.ack(BasicAckOptions::default()).await {
            tracing::debug!(%error, "an acknowledgement came too late; the event comes again and is known to be done");
        }
    }

    async fn requeue(self: Box<Self>) {
        if let Err(error) = self.delivery.nack(BasicNackOptions { requeue: true, multiple: false }).await {
            tracing::debug!(%error, "a delivery could not be given back; the broker has taken it back by itself");
        }
    }
    async fn reject(self: Box<Self>) {
        if let Err(error) = self.delivery.nack(BasicNackOptions { requeue: false, multiple: false }).await {
            tracing::debug!(%error, "a delivery could not be rejected; the broker delivers it again");
        }
    }
}

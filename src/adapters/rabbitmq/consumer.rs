//! Consuming with manual acknowledgements.

use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::{
    Channel, Consumer, message,
    options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    types::{FieldTable, ShortString},
};

use super::{codec, connection::AmqpUrl, unreadable::Suspects};
use crate::ports::{BrokerError, Deliveries, Delivery, Order, Receipt};

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
    let (name, suspects) = (queue.to_owned(), suspects.clone());
    Ok(Box::new(Queue { channel, consumer, name, order, suspects, ended: false }))
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
    order: Order,
    suspects: Suspects,
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
            None => tracing::debug!("consuming {} has ended", self.name),
        }
        self.ended = true;
        None
    }

    async fn cancel(&mut self) {
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

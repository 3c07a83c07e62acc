//! Consuming with manual acknowledgements.

use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::{
    Channel, Consumer, message,
    options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions},
    types::FieldTable,
};

use super::{codec, connection::AmqpUrl};
use crate::ports::{BrokerError, Deliveries, Delivery, Receipt};

pub(super) async fn consume(
    url: &AmqpUrl,
    channel: Channel,
    queue: &str,
    prefetch: u16,
) -> Result<Box<dyn Deliveries>, BrokerError> {
    let object = format!("the queue {queue}");
    let queue = codec::short(queue)?;
    // The connection's name says who it is, and may be longer than a tag.
    let tag = codec::short(&uuid::Uuid::now_v7().simple().to_string())?;
    let consuming = async {
        // Before consuming: lapin's buffer of deliveries has no bound of its own.
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        channel.basic_consume(queue, tag, BasicConsumeOptions::default(), FieldTable::default()).await
    };
    let consumer = consuming.await.map_err(|error| url.error(&error, &object))?;
    Ok(Box::new(Queue { channel, consumer, object, ended: false }))
}

struct Queue {
    channel: Channel,
    consumer: Consumer,
    object: String,
    ended: bool,
}

#[async_trait]
impl Deliveries for Queue {
    async fn next(&mut self) -> Option<Delivery> {
        if self.ended {
            return None;
        }
        match self.consumer.next().await {
            Some(Ok(mut delivery)) => {
                let message = codec::incoming(&mut delivery);
                // A channel closes with its last owner, and takes the deliveries back that are still being worked on.
                let receipt = Box::new(Tag { delivery, _channel: self.channel.clone() });
                return Some(Delivery { message, receipt });
            }
            Some(Err(error)) => tracing::warn!(%error, "consuming {} broke off", self.object),
            None => tracing::debug!("consuming {} has ended", self.object),
        }
        self.ended = true;
        None
    }

    async fn cancel(&mut self) {
        let cancelled = self.channel.basic_cancel(self.consumer.tag(), BasicCancelOptions::default()).await;
        if let Err(error) = cancelled {
            tracing::debug!(%error, "cancelling the consumer of {}", self.object);
            // The channel is gone, and with it every delivery that was not read yet.
            self.ended = true;
        }
    }
}

struct Tag {
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

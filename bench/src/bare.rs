//! Bare lapin: one connection with one channel that publishes with confirms, or consumes and acknowledges several deliveries at once.

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use hatchery_soak::acknowledged;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions},
    types::{FieldTable, ShortString},
};

use crate::{
    handled::Handled,
    load::{Load, WINDOW},
    topology::{SCHEDULER, Type},
};

pub(crate) struct Bare {
    pub(crate) connection: Connection,
    pub(crate) channel: Channel,
}

impl Bare {
    pub(crate) async fn connect(amqp: &str) -> anyhow::Result<Self> {
        let connection = Connection::connect(amqp, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        Ok(Self { connection, channel })
    }

    /// Publishes the events that are due now.
    pub(crate) async fn publish_now(&self, event_type: Type, load: &Load) -> anyhow::Result<()> {
        let key = ShortString::from(format!("{}.now", event_type.name()));
        self.publish(SCHEDULER, load, |number| (key.clone(), properties(number))).await
    }

    /// Publishes each event to the exchange, with the routing key and the properties that `message` returns for its number, and waits for
    /// all confirms.
    pub(crate) async fn publish(
        &self,
        exchange: &str,
        load: &Load,
        message: impl Fn(u32) -> (ShortString, BasicProperties),
    ) -> anyhow::Result<()> {
        self.channel.confirm_select(ConfirmSelectOptions::default()).await?;
        let (exchange, payload) = (ShortString::from(exchange), load.payload.clone());
        let mut unconfirmed = FuturesUnordered::new();
        for number in load.numbers() {
            if unconfirmed.len() == WINDOW {
                confirmed(unconfirmed.next().await)?;
            }
            let (key, properties) = message(number);
            let options = BasicPublishOptions::default();
            let sent = self.channel.basic_publish(exchange.clone(), key, options, &payload, properties);
            unconfirmed.push(sent.await?);
        }
        while !unconfirmed.is_empty() {
            confirmed(unconfirmed.next().await)?;
        }
        Ok(())
    }

    /// Consumes the queue until all awaited events are handled. Returns once the broker has all acknowledgements.
    pub(crate) async fn consume(&self, queue: &str, load: &Load, handled: &Handled) -> anyhow::Result<()> {
        handled.by(load.limit(), self.consume_all(queue, load, handled)).await
    }

    async fn consume_all(&self, queue: &str, load: &Load, handled: &Handled) -> anyhow::Result<()> {
        let Self { channel, .. } = self;
        channel.basic_qos(load.prefetch, BasicQosOptions::default()).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let mut consumer = channel.basic_consume(queue.into(), "bare".into(), options, arguments).await?;
        for n in 1_u64.. {
            let delivery = consumer.next().await.context("the broker cancelled the consumer")??;
            let all = handled.delivery(&delivery);
            if all || n.is_multiple_of(load.joined.into()) {
                ensure!(delivery.ack(BasicAckOptions { multiple: true }).await?, "an acknowledgement came too late");
                acknowledged::note(load.joined.into());
            }
            if all {
                break;
            }
        }
        Ok(channel.close(200, "done".into()).await?)
    }

    pub(crate) async fn close(&self) -> anyhow::Result<()> {
        Ok(self.connection.close(200, "done".into()).await?)
    }
}

/// Returns the properties of a persistent message that has the number as its id.
pub(crate) fn properties(number: u32) -> BasicProperties {
    BasicProperties::default().with_delivery_mode(2).with_message_id(number.to_string().into())
}

pub(crate) fn confirmed(confirm: Option<lapin::Result<Confirmation>>) -> anyhow::Result<()> {
    let confirm = confirm.context("a confirm is missing")??;
    ensure!(matches!(confirm, Confirmation::Ack(_)), "the broker refused a message");
    Ok(())
}

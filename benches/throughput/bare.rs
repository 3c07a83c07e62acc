//! Bare lapin's side of the benchmark: the same queue, prefetch and number of unconfirmed publishes.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
        QueuePurgeOptions,
    },
    types::FieldTable,
};

use crate::load::Load;

/// How many deliveries one acknowledgement covers.
const JOINED: usize = 50;

/// Publishes on one confirm channel.
pub(crate) async fn publish(amqp: &str, event_type: &str, load: &Load) -> Duration {
    let (connection, channel) = open(amqp).await;
    channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
    let key = format!("{event_type}.now");
    let started = Instant::now();
    let mut unconfirmed = FuturesUnordered::new();
    for n in 0..load.events {
        if unconfirmed.len() == load.window {
            confirmed(unconfirmed.next().await.unwrap());
        }
        let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(n.to_string().into());
        let options = BasicPublishOptions::default();
        let sent =
            channel.basic_publish("bench.scheduler".into(), key.as_str().into(), options, &load.payload, properties);
        unconfirmed.push(sent.await.unwrap());
    }
    while let Some(confirm) = unconfirmed.next().await {
        confirmed(confirm);
    }
    let elapsed = started.elapsed();
    connection.close(200, "".into()).await.unwrap();
    elapsed
}

fn confirmed(confirm: lapin::Result<Confirmation>) {
    assert!(matches!(confirm.unwrap(), Confirmation::Ack(_)));
}

/// Consumes the events and acknowledges them by fifties.
pub(crate) async fn work(amqp: &str, event_type: &str, load: &Load) -> Duration {
    let (connection, channel) = open(amqp).await;
    let started = Instant::now();
    channel.basic_qos(load.prefetch, BasicQosOptions::default()).await.unwrap();
    let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
    let mut consumer =
        channel.basic_consume(queue(event_type).into(), "bare".into(), options, arguments).await.unwrap();
    for n in 1..=load.events {
        let delivery = consumer.next().await.unwrap().unwrap();
        if n % JOINED == 0 || n == load.events {
            assert!(delivery.ack(BasicAckOptions { multiple: true }).await.unwrap());
        }
    }
    let elapsed = started.elapsed();
    connection.close(200, "".into()).await.unwrap();
    elapsed
}

/// Empties the processing queue.
pub(crate) async fn purge(amqp: &str, event_type: &str) {
    let (connection, channel) = open(amqp).await;
    channel.queue_purge(queue(event_type).into(), QueuePurgeOptions::default()).await.unwrap();
    connection.close(200, "".into()).await.unwrap();
}

fn queue(event_type: &str) -> String {
    format!("bench.processor.{event_type}")
}

async fn open(amqp: &str) -> (Connection, Channel) {
    let connection = Connection::connect(amqp, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

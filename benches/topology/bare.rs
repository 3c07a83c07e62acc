//! Declares the same objects with bare lapin, without reading, locking or checking anything.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use hatchery::internals::compile::{Argument, Binding, Desired, Target};
use lapin::{
    Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};

/// The number of channels, the same as in `topology apply`.
const CHANNELS: usize = 8;

/// Declares the objects over one connection with eight channels. All calls of a kind are under way at once. The kinds
/// come one after the other, because a binding needs its source and its target.
pub(crate) async fn declare(url: &str, desired: &Desired) -> lapin::Result<()> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channels = try_join_all((0..CHANNELS).map(|_| connection.create_channel())).await?;
    let turns = || channels.iter().cycle();
    try_join_all(desired.exchanges.iter().zip(turns()).map(|(exchange, channel)| {
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        channel.exchange_declare(
            exchange.name.as_str().into(),
            ExchangeKind::Topic,
            options,
            table(&exchange.arguments),
        )
    }))
    .await?;
    try_join_all(desired.queues.iter().zip(turns()).map(|(queue, channel)| {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(queue.name.as_str().into(), options, table(&queue.arguments))
    }))
    .await?;
    try_join_all(desired.bindings.iter().zip(turns()).map(|(binding, channel)| bind(channel, binding))).await?;
    connection.close(200, "done".into()).await
}

async fn bind(channel: &Channel, Binding { source, target, key }: &Binding) -> lapin::Result<()> {
    let (from, to, key) = (source.as_str().into(), target.name().into(), key.as_str().into());
    let none = FieldTable::default();
    match target {
        Target::Exchange(_) => channel.exchange_bind(to, from, key, ExchangeBindOptions::default(), none).await,
        Target::Queue(_) => channel.queue_bind(to, from, key, QueueBindOptions::default(), none).await,
    }
}

fn table(arguments: &BTreeMap<String, Argument>) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        let value = match value {
            Argument::Text(text) => AMQPValue::LongString(text.as_str().into()),
            Argument::Number(number) => AMQPValue::LongLongInt(*number),
            Argument::Flag(flag) => AMQPValue::Boolean(*flag),
        };
        table.insert(name.as_str().into(), value);
    }
    table
}

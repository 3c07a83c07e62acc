//! Exchanges and queues that a case declares with bare lapin beside the topology, as hatchery declares its own: topic
//! exchanges and quorum queues, and timers that dead-letter at least once.

use std::time::Duration;

use lapin::{
    Channel, ExchangeKind,
    options::{
        ExchangeBindOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions,
        QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable},
};

pub(crate) struct Objects<'a> {
    channel: &'a Channel,
    exchanges: Vec<String>,
    queues: Vec<String>,
}

impl<'a> Objects<'a> {
    pub(crate) const fn new(channel: &'a Channel) -> Self {
        Self { channel, exchanges: Vec::new(), queues: Vec::new() }
    }

    pub(crate) async fn exchange(&mut self, name: &str) -> anyhow::Result<()> {
        self.exchanges.push(name.to_owned());
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        Ok(self.channel.exchange_declare(name.into(), ExchangeKind::Topic, options, FieldTable::default()).await?)
    }

    pub(crate) async fn queue(&mut self, name: &str) -> anyhow::Result<()> {
        self.declare(name, FieldTable::default()).await
    }

    /// Declares a queue without a consumer, which dead-letters to the exchange when the time is over.
    pub(crate) async fn timer(&mut self, name: &str, ttl: Duration, dead_letter_exchange: &str) -> anyhow::Result<()> {
        let text = |text: &str| AMQPValue::LongString(text.into());
        let mut arguments = FieldTable::default();
        arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(ttl.as_millis().try_into()?));
        arguments.insert("x-dead-letter-exchange".into(), text(dead_letter_exchange));
        arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
        arguments.insert("x-overflow".into(), text("reject-publish"));
        self.declare(name, arguments).await
    }

    async fn declare(&mut self, name: &str, mut arguments: FieldTable) -> anyhow::Result<()> {
        self.queues.push(name.to_owned());
        arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(name.into(), options, arguments).await?;
        Ok(())
    }

    pub(crate) async fn bind(&self, source: &str, queue: &str, key: &str) -> anyhow::Result<()> {
        let (options, none) = (QueueBindOptions::default(), FieldTable::default());
        Ok(self.channel.queue_bind(queue.into(), source.into(), key.into(), options, none).await?)
    }

    pub(crate) async fn bind_exchange(&self, source: &str, exchange: &str, key: &str) -> anyhow::Result<()> {
        let (options, none) = (ExchangeBindOptions::default(), FieldTable::default());
        Ok(self.channel.exchange_bind(exchange.into(), source.into(), key.into(), options, none).await?)
    }

    pub(crate) async fn delete(self) -> anyhow::Result<()> {
        for queue in self.queues {
            self.channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await?;
        }
        for exchange in self.exchanges {
            self.channel.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await?;
        }
        Ok(())
    }
}

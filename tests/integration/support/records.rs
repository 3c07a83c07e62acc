//! The records on the stream of the life of events, read with an ordinary AMQP client.

use std::time::Duration;

use futures_util::StreamExt as _;
use hatchery::LifeCycleRecord;
use lapin::{
    Consumer,
    options::BasicAckOptions,
    types::{AMQPValue, FieldTable},
};
use tokio::time::timeout;

use super::{
    amqp::{Amqp, long},
    broker::PATIENCE,
};

/// A reader of the stream from its first record on.
pub(crate) struct Records(Consumer);

impl Records {
    pub(crate) async fn open(amqp: &Amqp, stream: &str) -> Self {
        let mut first = FieldTable::default();
        first.insert("x-stream-offset".into(), long("first"));
        Self(amqp.hold_as(stream, 1_000, first).await)
    }

    /// Reads until there are this many records of `which`, and returns these.
    pub(crate) async fn reach(
        &mut self,
        count: usize,
        which: impl Fn(&LifeCycleRecord) -> bool,
    ) -> Vec<LifeCycleRecord> {
        let mut found = Vec::new();
        while found.len() < count {
            let next = self.next(PATIENCE).await.unwrap_or_else(|| panic!("only {found:#?}"));
            found.extend(Some(next).filter(&which));
        }
        found
    }

    /// Reads until no record comes for this long, and returns all.
    pub(crate) async fn rest(&mut self, quiet: Duration) -> Vec<LifeCycleRecord> {
        let mut found = Vec::new();
        while let Some(next) = self.next(quiet).await {
            found.push(next);
        }
        found
    }

    /// Returns the next record, whose routing key and filter value have to be its own.
    async fn next(&mut self, within: Duration) -> Option<LifeCycleRecord> {
        let delivery = timeout(within, self.0.next()).await.ok()?.unwrap().unwrap();
        delivery.ack(BasicAckOptions::default()).await.unwrap();
        let record = LifeCycleRecord::parse(&delivery.data).unwrap();
        let headers = delivery.properties.headers().clone().unwrap_or_default();
        let filter = headers.inner().get("x-stream-filter-value").and_then(AMQPValue::as_long_string);
        let expected = Some(record.filter_value()).filter(|value| !value.is_empty());
        assert_eq!(filter.map(ToString::to_string).as_deref(), expected);
        assert_eq!(delivery.routing_key.as_str(), record.routing_key());
        Some(record)
    }
}

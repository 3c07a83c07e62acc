//! The records on the stream of the life of events, read with an ordinary AMQP client.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

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
pub(crate) struct Records {
    consumer: Consumer,
    /// The records of the last message that are not returned yet.
    found: VecDeque<LifeCycleRecord>,
}

impl Records {
    pub(crate) async fn open(amqp: &Amqp, stream: &str) -> Self {
        let mut first = FieldTable::default();
        first.insert("x-stream-offset".into(), long("first"));
        Self { consumer: amqp.hold_as(stream, 1_000, first).await, found: VecDeque::new() }
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

    /// Returns the next record. The routing key of its message has to be its own, and so has the filter value, if there is one.
    async fn next(&mut self, within: Duration) -> Option<LifeCycleRecord> {
        if self.found.is_empty() {
            let delivery = timeout(within, self.consumer.next()).await.ok()?.unwrap().unwrap();
            delivery.ack(BasicAckOptions::default()).await.unwrap();
            self.found.extend(LifeCycleRecord::parse_all(&delivery.data).map(Result::unwrap));
            let headers = delivery.properties.headers().clone().unwrap_or_default();
            let filter = headers.inner().get("x-stream-filter-value").and_then(AMQPValue::as_long_string);
            let of_all: BTreeSet<_> = self.found.iter().map(LifeCycleRecord::filter_value).collect();
            let expected = of_all.first().filter(|value| of_all.len() == 1 && !value.is_empty()).copied();
            assert_eq!(filter.map(ToString::to_string).as_deref(), expected);
            assert!(self.found.iter().all(|record| record.routing_key() == delivery.routing_key.as_str()));
        }
        self.found.pop_front()
    }
}

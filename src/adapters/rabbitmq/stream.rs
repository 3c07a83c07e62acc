//! Reads a stream from an offset or a time, without removing messages.
//!
//! RabbitMQ delivers whole chunks, so messages from before the start come too. From 3.13 on it skips what does not pass the filter; older
//! versions ignore the filter. So the caller checks each message.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use lapin::{
    Channel, Consumer,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions},
    types::{AMQPValue, FieldTable},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    RabbitMq,
    connection::{NodeConnection, deliveries},
};
use crate::ports::BrokerError;

/// The prefetch. A record has less than 1 kB, so 2 MB are on their way at most.
const PREFETCH: u16 = 2_000;

/// The messages of an acknowledgement.
const ACKNOWLEDGED: u16 = PREFETCH / 2;

/// How long nodes may refuse the reader because their replicas of the stream are just starting.
const STARTING: Duration = Duration::from_secs(10);

/// The delay between two tries.
const AGAIN: Duration = Duration::from_millis(500);

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// With the oldest message.
    First,
    /// With the last chunk of messages.
    Last,
    /// With the chunk that contains this time, in seconds since 1970.
    Second(u64),
}

/// A message of a stream.
pub(crate) struct Read {
    /// Its `x-stream-offset`.
    pub(crate) offset: i64,
    /// The value by which the broker filters it.
    pub(crate) filter_value: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// A consumer of a stream.
pub(crate) struct StreamReader {
    link: Arc<NodeConnection>,
    channel: Channel,
    consumer: Consumer,
    stream: String,
    unacknowledged: u16,
}

impl RabbitMq {
    /// Reads a stream. `filter`: the values to deliver, beside the messages without one; all if there are none.
    ///
    /// # Errors
    /// When the broker is away, has no such stream, or refuses to read it.
    pub(crate) async fn read(
        &self,
        stream: &str,
        begin: Begin,
        filter: &[String],
    ) -> Result<StreamReader, BrokerError> {
        let mut arguments = FieldTable::default();
        let offset = match begin {
            Begin::First => text("first"),
            Begin::Last => text("last"),
            Begin::Second(second) => AMQPValue::Timestamp(second),
        };
        arguments.insert("x-stream-offset".into(), offset);
        if !filter.is_empty() {
            let values: Vec<AMQPValue> = filter.iter().map(|value| text(value)).collect();
            arguments.insert("x-stream-filter".into(), AMQPValue::FieldArray(values.into()));
            arguments.insert("x-stream-match-unfiltered".into(), AMQPValue::Boolean(true));
        }
        let began = Instant::now();
        loop {
            let (link, channel) = self.channel_of(&self.looking, &format!("{} (looking)", self.name)).await?;
            let tag = uuid::Uuid::now_v7().simple().to_string();
            let begun = deliveries(&channel, async {
                channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
                let options = BasicConsumeOptions::default();
                channel.basic_consume(stream.into(), tag.into(), options, arguments.clone()).await
            });
            match begun.await.map_err(|error| link.error(&error, &format!("the stream {stream}"))) {
                Ok(consumer) => {
                    return Ok(StreamReader { link, channel, consumer, stream: stream.to_owned(), unacknowledged: 0 });
                }
                Err(error) if is_starting(&error) && began.elapsed() < STARTING => {
                    link.leave();
                    sleep(AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether a node refuses a reader because its replica of the stream is just starting: with 406, or on RabbitMQ 4.0 by closing the
/// connection with `INTERNAL_ERROR` (measured). Another node may have one that runs.
#[must_use]
pub fn is_starting(error: &BrokerError) -> bool {
    match error {
        BrokerError::Rejected { reason, .. } => !reason.contains("ACCESS_REFUSED"),
        BrokerError::Unreachable { reason, .. } => reason.contains("INTERNAL_ERROR"),
        _ => false,
    }
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

impl StreamReader {
    /// Returns the error that says why the reading cannot go on.
    pub(crate) fn stuck(&self, reason: &str) -> BrokerError {
        self.link.unreachable(format!("the stream {} {reason}", self.stream))
    }

    /// Returns the next message. `None` if none comes within this time.
    ///
    /// # Errors
    /// When the broker ends the reading.
    pub(crate) async fn next(&mut self, within: Duration) -> Result<Option<Read>, BrokerError> {
        let Ok(received) = timeout(within, self.consumer.next()).await else { return Ok(None) };
        let object = format!("the stream {}", self.stream);
        let delivery = match received {
            Some(Ok(delivery)) => delivery,
            Some(Err(error)) => return Err(self.link.error(&error, &object)),
            None => return Err(self.link.unreachable(format!("it ended the reading of {object}"))),
        };
        self.unacknowledged += 1;
        if self.unacknowledged >= ACKNOWLEDGED {
            self.unacknowledged = 0;
            let all = BasicAckOptions { multiple: true };
            let told = self.channel.basic_ack(delivery.delivery_tag, all).await;
            told.map_err(|error| self.link.error(&error, &object))?;
        }
        let headers = delivery.properties.headers().as_ref();
        let header = |name: &str| headers.and_then(|headers| headers.inner().get(name));
        let filter_value = header("x-stream-filter-value").and_then(AMQPValue::as_long_string).map(ToString::to_string);
        let offset = header("x-stream-offset").and_then(AMQPValue::as_long_long_int).unwrap_or_default();
        Ok(Some(Read { offset, filter_value, body: delivery.data }))
    }
}

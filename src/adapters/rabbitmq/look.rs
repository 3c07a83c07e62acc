//! Looks at a queue and keeps its order.
//!
//! A quorum queue treats messages that come back as follows (measured on 3.10.8 and 4.3.6):
//!
//! - Closing the channel returns its messages in their order, also those of several consumers on the channel.
//!   `basic.nack` for several messages returns them in any order on 3.10, and so does closing a channel that used
//!   `basic.get`. So a look consumes, and closes its channel.
//! - Returned messages stand before all that were never delivered, and behind those that were returned earlier. So two
//!   looks at a time would exchange the order of their messages: an exclusive queue is the lock that admits one. (A
//!   quorum queue ignores `exclusive` in `basic.consume`.)
//! - For the same reason a look that ends early reads on until a message that was never delivered before: otherwise its
//!   messages would return behind those that an earlier look has returned.
//!
//! A consumer that is full with messages that stay in the queue is cancelled, and keeps them. The next consumer has twice
//! the prefetch, so that a large queue needs few consumers, and a small look holds few messages in memory. Nothing may be on
//! its way to a consumer that is cancelled: RabbitMQ's channel would return such a message at once, before the others
//! (measured on 3.10.8: 464 of 33,000 letters out of order).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{FutureExt as _, StreamExt as _};
use lapin::{
    Channel, Consumer,
    options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{FieldTable, ShortString},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    codec,
    connection::{NodeConnection, answer, deliveries},
    receipts::{Answers, Burst},
    suspects,
};
use crate::{
    adapters::kept::Kept,
    domain::names,
    ports::{BrokerError, Delivery, LOOK_IN_FLIGHT, Look},
};

/// The prefetch of the first consumer: room for the messages that the caller holds, and for as many that stay.
const FIRST_PREFETCH: u16 = 2_048;

/// How long the look waits for a delivery before it asks whether the queue has more. If twice in a row it has none, others hold
/// the rest: what RabbitMQ was sending at the first question came before its second answer.
const LULL: Duration = Duration::from_millis(500);

/// How long the queue may deliver nothing although it has messages.
const SILENCE: Duration = Duration::from_secs(30);

/// How long closed channels may take to return their messages. It takes milliseconds.
const RETURN_LIMIT: Duration = Duration::from_secs(10);

/// How the consumer of a look has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The consumer was cancelled, by this look or because the queue was deleted.
    Cancelled,
    /// A message or the broker has ended its channel or connection.
    Failed,
}

pub(super) struct QueueLook {
    link: Arc<NodeConnection>,
    channel: Channel,
    consumer: Consumer,
    /// Whether the consumer is cancelled, because it is full.
    cancelled: bool,
    /// The end of the consumer, once it was read. It can be read only once.
    end: Option<End>,
    answers: Answers,
    burst: Burst,
    queue: String,
    prefetch: u16,
    /// The number of the consumer. RabbitMQ returns the messages of a channel's consumers in the order of their tags.
    number: u32,
    /// How many messages the consumer has delivered.
    delivered: usize,
    /// Messages whose receipt was dropped. They stay in the queue.
    kept: Kept,
    /// Messages that [`next`](Look::next) has not returned yet.
    ahead: VecDeque<Delivery>,
    ready: u64,
    consumers: u32,
    read: u64,
    /// Whether a message was read that was never delivered before. No returned message stands behind it.
    passed_returned: bool,
}

impl QueueLook {
    pub(super) async fn open(link: Arc<NodeConnection>, channel: Channel, queue: &str) -> Result<Self, BrokerError> {
        lock(&link, queue).await?;
        match Self::begin(Arc::clone(&link), channel, queue).await {
            Ok(look) => Ok(look),
            Err(error) => {
                unlock(&link, queue).await;
                Err(error)
            }
        }
    }

    async fn begin(link: Arc<NodeConnection>, channel: Channel, queue: &str) -> Result<Self, BrokerError> {
        let (ready, consumers) = counts(&link, &channel, queue).await?;
        let consumer = consume(&link, &channel, queue, FIRST_PREFETCH, 0).await?;
        let burst = Burst::default();
        Ok(Self {
            answers: Answers::start(Arc::clone(&link), channel.clone(), FIRST_PREFETCH, burst.clone()),
            burst,
            link,
            channel,
            consumer,
            cancelled: false,
            end: None,
            queue: queue.to_owned(),
            prefetch: FIRST_PREFETCH,
            number: 0,
            delivered: 0,
            kept: Kept::default(),
            ahead: VecDeque::new(),
            ready,
            consumers,
            read: 0,
            passed_returned: false,
        })
    }

    /// Cancels a consumer that is half full with messages that stay. The other half is for the caller's messages. Before that
    /// it reads all that RabbitMQ may send to the consumer, while the caller acknowledges what it holds.
    async fn cancel_if_full(&mut self) -> Result<(), BrokerError> {
        let prefetch = usize::from(self.prefetch);
        if self.cancelled || self.kept.len() * 2 < prefetch {
            return Ok(());
        }
        let mut lulls = Lulls::default();
        while self.delivered < prefetch + self.kept.answered() || self.with_caller() > 0 {
            match timeout(LULL, self.consumer.next()).await {
                Ok(received) => {
                    self.receive(received)?;
                    lulls = Lulls::default();
                }
                Err(_) if self.nothing_comes(&mut lulls).await? => return Ok(()),
                Err(_) => {}
            }
        }
        let cancelling = self.channel.basic_cancel(self.consumer.tag(), BasicCancelOptions::default());
        self.answered(answer(cancelling).await)?;
        self.cancelled = true;
        Ok(())
    }

    async fn consume_more(&mut self) -> Result<(), BrokerError> {
        self.prefetch = self.prefetch.saturating_mul(2);
        self.number += 1;
        self.consumer = consume(&self.link, &self.channel, &self.queue, self.prefetch, self.number).await?;
        (self.delivered, self.kept) = (0, Kept::default());
        (self.cancelled, self.end) = (false, None);
        Ok(())
    }

    /// Returns how many of the consumer's messages the caller holds.
    fn with_caller(&self) -> usize {
        self.delivered - self.ahead.len() - self.kept.answered() - self.kept.len()
    }

    /// Whether no more messages come, after a lull.
    ///
    /// # Errors
    /// When the queue has messages and delivers none for long.
    async fn nothing_comes(&self, lulls: &mut Lulls) -> Result<bool, BrokerError> {
        if counts(&self.link, &self.channel, &self.queue).await?.0 == 0 {
            lulls.empty += 1;
            return Ok(lulls.empty == 2);
        }
        lulls.empty = 0;
        if lulls.since.elapsed() > SILENCE {
            let queue = &self.queue;
            let reason = format!("{queue} has messages and delivers none for {} s", SILENCE.as_secs());
            return Err(self.link.unreachable(reason));
        }
        Ok(false)
    }

    /// Takes a delivery, or notes the end of the consumer.
    fn receive(&mut self, received: Option<lapin::Result<lapin::message::Delivery>>) -> Result<(), BrokerError> {
        let Some(received) = received else {
            self.end = Some(End::Cancelled);
            // Otherwise the broker has cancelled it, because the queue was deleted.
            let missing = || BrokerError::Missing { object: format!("the queue {}", self.queue) };
            return self.cancelled.then_some(()).ok_or_else(missing);
        };
        if received.is_err() {
            self.end = Some(End::Failed);
        }
        let mut received = self.answered(received)?;
        self.read += 1;
        self.passed_returned |= !received.redelivered;
        let message = codec::incoming(&mut received);
        self.delivered += 1;
        let receipt = self.kept.receipt(self.answers.receipt(received.delivery_tag, received.acker));
        let (priority, redelivered) = (*received.properties.priority(), received.redelivered);
        self.ahead.push_back(Delivery { message, priority, redelivered, receipt });
        Ok(())
    }

    fn answered<T>(&self, result: lapin::Result<T>) -> Result<T, BrokerError> {
        result.map_err(|error| {
            let object = format!("the queue {}", self.queue);
            match suspects::unreadable(&error) {
                Some(why) => BrokerError::Unreadable { object, why },
                None => self.link.error(&error, &object),
            }
        })
    }

    /// Reads on until no message that an earlier look has returned stands behind those of this one.
    async fn pass_returned(&mut self) -> Result<(), BrokerError> {
        while !self.passed_returned && !self.next(LOOK_IN_FLIGHT).await?.is_empty() {}
        Ok(())
    }

    /// Waits until no acknowledgement is lost when the channel closes (see [`super::receipts`]). If the queue has no other
    /// message, another consumer takes the place of a pause: the queue answers `basic.consume` after what was sent ahead,
    /// and what was held back is sent on before the broker reads the next call to the channel. Close the channel before you drop
    /// that consumer: lapin cancels a consumer that is dropped, and the cancel may follow the close. RabbitMQ then closes the
    /// whole connection (`expected 'channel.open'`; seen once on a busy machine).
    async fn send_on(&mut self) -> Result<Option<Consumer>, BrokerError> {
        if counts(&self.link, &self.channel, &self.queue).await?.0 > 0 {
            self.burst.is_over().await;
            return Ok(None);
        }
        let consumer = consume(&self.link, &self.channel, &self.queue, 1, self.number + 1).await?;
        counts(&self.link, &self.channel, &self.queue).await?;
        Ok(Some(consumer))
    }

    /// Waits until the messages of the closed channel are back, so that the next look sees them. The broker answers the close
    /// a moment earlier. A consumer that holds messages counts as one of the queue's, also after its cancel (`rabbit_fifo`:
    /// `query_stat`).
    async fn wait_for_return(&self) -> Result<(), BrokerError> {
        let (channel, since) = (self.link.channel().await?, Instant::now());
        while counts(&self.link, &channel, &self.queue).await?.1 > self.consumers && since.elapsed() < RETURN_LIMIT {
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

#[async_trait]
impl Look for QueueLook {
    fn ready(&self) -> u64 {
        self.ready
    }

    fn consumers(&self) -> u32 {
        self.consumers
    }

    async fn next(&mut self, most: usize) -> Result<Vec<Delivery>, BrokerError> {
        let mut lulls = Lulls::default();
        while self.ahead.is_empty() && self.read < self.ready && most > 0 && self.end != Some(End::Failed) {
            self.cancel_if_full().await?;
            if self.end.is_some() {
                self.consume_more().await?;
            }
            match timeout(LULL, self.consumer.next()).await {
                Ok(received) => self.receive(received)?,
                Err(_) if self.nothing_comes(&mut lulls).await? => break,
                Err(_) => {}
            }
        }
        while self.ahead.len() < most
            && self.read < self.ready
            && self.end.is_none()
            && let Some(received) = self.consumer.next().now_or_never()
        {
            self.receive(received)?;
        }
        let most = most.min(self.ahead.len());
        Ok(self.ahead.drain(..most).collect())
    }

    async fn close(mut self: Box<Self>) -> Result<(), BrokerError> {
        if !self.link.connection.status().connected() {
            return Err(self.link.unreachable("the connection is lost".to_owned()));
        }
        let passed = self.pass_returned().await;
        let sent_on = self.send_on().await;
        let closed = self.answered(answer(self.channel.close(200, ShortString::from("done"))).await);
        let returned = if closed.is_ok() { self.wait_for_return().await } else { Ok(()) };
        unlock(&self.link, &self.queue).await;
        passed.and(sent_on.map(drop)).and(closed).and(returned)
    }
}

/// The lulls since a delivery.
struct Lulls {
    since: Instant,
    /// How often in a row the queue had nothing more.
    empty: u8,
}

impl Default for Lulls {
    fn default() -> Self {
        Self { since: Instant::now(), empty: 0 }
    }
}

/// Returns the number of messages that are ready in a queue, and of its consumers.
async fn counts(link: &NodeConnection, channel: &Channel, queue: &str) -> Result<(u64, u32), BrokerError> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let declaring = channel.queue_declare(codec::short(queue)?, options, FieldTable::default());
    let declared = link.answer(&format!("the queue {queue}"), declaring).await?;
    Ok((declared.message_count().into(), declared.consumer_count()))
}

async fn consume(
    link: &NodeConnection,
    channel: &Channel,
    queue: &str,
    prefetch: u16,
    number: u32,
) -> Result<Consumer, BrokerError> {
    let (name, tag) = (codec::short(queue)?, codec::short(&format!("look-{number:04}"))?);
    let consuming = deliveries(channel, async {
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        channel.basic_consume(name, tag, BasicConsumeOptions::default(), FieldTable::default()).await
    });
    consuming.await.map_err(|error| link.error(&error, &format!("the queue {queue}")))
}

/// Takes the lock of those who look at the queue. The broker frees it when the connection ends.
async fn lock(link: &NodeConnection, queue: &str) -> Result<(), BrokerError> {
    // A refusal closes the channel.
    let channel = link.channel().await?;
    let options = QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
    let declaring = channel.queue_declare(codec::short(&names::look_lock(queue))?, options, FieldTable::default());
    link.answer(&format!("the queue {queue}"), declaring).await.map(drop)
}

async fn unlock(link: &NodeConnection, queue: &str) {
    let deleting = async {
        let (channel, lock) = (link.channel().await?, codec::short(&names::look_lock(queue))?);
        link.answer("a lock", channel.queue_delete(lock, QueueDeleteOptions::default())).await
    };
    if let Err(error) = deleting.await {
        tracing::debug!(%error, "the lock of {queue} ends with its connection");
    }
}

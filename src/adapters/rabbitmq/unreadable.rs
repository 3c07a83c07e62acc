//! Consumes queues with messages that end each connection that they are delivered to. lapin cannot read one whose property,
//! header's name or routing key is not UTF-8, and RabbitMQ 4 cannot translate each message that it took by AMQP 1.0.
//!
//! Such a message is delivered again. Only the broker's delivery
//! limit stops that, and each failure also counts as a return of every other message of the connection. So after such a failure each message gets a connection of its own ([`OneByOne`]), until the broker has
//! dead-lettered the unreadable one.
//!
//! A queue whose order is kept gets one connection, and one message at a time on it: [`InOrder`]. RabbitMQ puts a
//! returned message behind those that were returned earlier (measured on 3.10 and 4.3). So the
//! connection is not closed after each message, which would return the next message behind others. Only the unreadable
//! message goes back, behind the messages that its first failure returned. Those are handled in their order. Such a queue
//! has no delivery limit, so the unreadable message then stays at the head until somebody removes it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use lapin::{Acker, Channel, Consumer, options::BasicCancelOptions};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    codec,
    connection::{self, AmqpUrl, NodeConnection, answer},
    consumer::{self, How},
    receipts,
    suspects::{self, Suspects},
};
use crate::{
    domain::compile::DELIVERY_LIMIT,
    ports::{BrokerError, Deliveries, Delivery, Disposition, Receipt, TakenBack, Written},
};

/// The highest number of connections at a time.
const CONNECTIONS: usize = 10;

/// If no message comes for this long, the unreadable message counts as gone.
const QUIET: Duration = Duration::from_secs(5);

/// A consumer that takes each message on a connection of its own. It ends once as many messages in a row as its
/// prefetch were readable, or another queue is convicted before.
pub(super) struct OneByOne {
    taker: Taker,
    prefetch: u16,
    suspects: Suspects,
    /// The task that takes the next message.
    taking: Option<AbortOnDropHandle<Result<Taken, BrokerError>>>,
    /// How many more messages in a row must be readable.
    left: u16,
    /// The number of unreadable deliveries so far.
    unreadable: i64,
    /// Whether this program has cancelled the consumer. That does not mean that the queue is readable.
    cancelled: bool,
    /// Ends the consumer when this token is cancelled.
    closed: CancellationToken,
}

/// Takes one message on a connection of its own.
#[derive(Clone)]
struct Taker {
    url: AmqpUrl,
    name: String,
    queue: String,
    connections: Arc<Semaphore>,
}

enum Taken {
    Message(Box<Delivery>),
    /// The message has ended its connection, for this reason.
    Unreadable(&'static str),
    Nothing,
}

impl OneByOne {
    pub(super) fn new(
        url: &AmqpUrl,
        name: &str,
        queue: &str,
        prefetch: u16,
        suspects: &Suspects,
        closed: CancellationToken,
    ) -> Self {
        let connections = Arc::new(Semaphore::new(CONNECTIONS));
        Self {
            taker: Taker { url: url.clone(), name: name.to_owned(), queue: queue.to_owned(), connections },
            prefetch,
            suspects: suspects.clone(),
            taking: None,
            left: prefetch,
            unreadable: 0,
            cancelled: false,
            closed,
        }
    }
}

impl Taker {
    async fn take(self) -> Result<Taken, BrokerError> {
        let Ok(permit) = Arc::clone(&self.connections).acquire_owned().await else { return Ok(Taken::Nothing) };
        let (link, channel) = self.url.link(&self.name, None).await?;
        let failed = |link: &NodeConnection, error: lapin::Error| match suspects::unreadable(&error) {
            Some(why) => Ok(Taken::Unreadable(why)),
            None => Err(link.error(&error, &format!("the queue {}", self.queue))),
        };
        let consumer = match consumer::begin(&channel, &self.queue, &How::one_by_one()).await {
            Ok(consumer) => consumer,
            Err(error) => return failed(&link, error),
        };
        // They are dropped in this order, the connection first, because lapin cancels a consumer that is dropped.
        let mut held = (link, consumer);
        let delivery = match tokio::time::timeout(QUIET, held.1.next()).await {
            Ok(Some(Ok(delivery))) => delivery,
            Ok(Some(Err(error))) => return failed(&held.0, error),
            Ok(None) | Err(_) => return Ok(Taken::Nothing),
        };
        // The prefetch is 1, so no other message is delivered before this one is answered.
        let cancelling = channel.basic_cancel(held.1.tag(), BasicCancelOptions::default());
        if let Err(error) = answer(cancelling).await {
            return failed(&held.0, error);
        }
        let receipt =
            |_, acker| -> Box<dyn Receipt> { Box::new(Alone { held, acker, _channel: channel, _permit: permit }) };
        Ok(Taken::Message(Box::new(codec::delivery(delivery, receipt))))
    }
}

#[async_trait]
impl Deliveries for OneByOne {
    async fn next(&mut self) -> Option<Delivery> {
        if self.cancelled {
            return None;
        }
        // A queue that is acquitted goes on with the others.
        while self.left > 0 && (self.unreadable > 0 || self.suspects.why(&self.taker.queue).is_some()) {
            let take = || AbortOnDropHandle::new(tokio::spawn(self.taker.clone().take()));
            let taken = self.closed.run_until_cancelled(self.taking.get_or_insert_with(take)).await;
            self.taking = None;
            let taken = taken?;
            let queue = &self.taker.queue;
            match taken.unwrap_or(Ok(Taken::Nothing)) {
                Ok(Taken::Message(delivery)) => {
                    self.left -= 1;
                    return Some(*delivery);
                }
                Ok(Taken::Unreadable(why)) => {
                    if self.unreadable == 0 {
                        tracing::error!(why, "a message in {queue} cannot be read; its delivery limit dead-letters it");
                    }
                    self.suspects.convict(queue, why);
                    self.unreadable += 1;
                    self.left = self.prefetch;
                    if self.unreadable > 2 * DELIVERY_LIMIT {
                        tracing::warn!(
                            "an unreadable message of {queue} is redelivered without end; check its delivery limit"
                        );
                        tokio::time::sleep(QUIET).await;
                    }
                }
                Ok(Taken::Nothing) => break,
                Err(error) => {
                    tracing::warn!(%error, "the consumer of {queue} failed");
                    return None;
                }
            }
        }
        self.suspects.clear(&self.taker.queue);
        None
    }

    async fn cancel(&mut self) {
        self.cancelled = true;
    }

    fn outlived(&self) -> bool {
        true
    }

    /// Does nothing: each delivery goes back when its own connection is closed.
    async fn close(self: Box<Self>) {}
}

/// A consumer that takes one message at a time, on one connection of its own. It ends once as many messages as its
/// prefetch were readable.
pub(super) struct InOrder {
    // Dropped before its connection.
    deliveries: Box<dyn Deliveries>,
    link: Arc<NodeConnection>,
    count: Count,
    /// Whether the connection is open. While it is, its deliveries stay with the worker.
    lasts: bool,
    /// Ends the consumer when this token is cancelled.
    closed: CancellationToken,
}

/// Counts the messages that must be readable until the queue is no suspect any more. If it is dropped earlier, the
/// queue becomes a suspect again.
struct Count {
    left: u16,
    queue: String,
    why: &'static str,
    suspects: Suspects,
}

impl Drop for Count {
    fn drop(&mut self) {
        if self.left > 0 {
            self.suspects.add(&self.queue, self.why);
        }
    }
}

impl InOrder {
    pub(super) async fn begin(
        url: &AmqpUrl,
        name: &str,
        (queue, why): (&str, &'static str),
        prefetch: u16,
        suspects: &Suspects,
        closed: CancellationToken,
    ) -> Result<Self, BrokerError> {
        let (link, channel) = url.link(name, None).await?;
        let link = Arc::new(link);
        // This connection consumes this queue alone, so it tells anew whether the unreadable message is in this queue.
        suspects.clear(queue);
        let count = Count { left: prefetch, queue: queue.to_owned(), why, suspects: suspects.clone() };
        let deliveries = consumer::consume(Arc::clone(&link), channel, queue, How::one_by_one(), suspects).await?;
        Ok(Self { deliveries, link, count, lasts: true, closed })
    }
}

#[async_trait]
impl Deliveries for InOrder {
    async fn next(&mut self) -> Option<Delivery> {
        if !self.lasts {
            return None;
        }
        let Count { left, queue, suspects, .. } = &mut self.count;
        match self.closed.run_until_cancelled(self.deliveries.next()).await? {
            // With a prefetch of 1 this delivery means that the one before is answered. It goes back alone.
            Some(_) if *left == 0 => return None,
            Some(delivery) => {
                *left -= 1;
                return Some(delivery);
            }
            None => self.lasts = false,
        }
        if let Some(why) = suspects.why(queue) {
            suspects.convict(queue, why);
            tracing::error!(why, "a message in {queue} cannot be read, and blocks the queue until somebody removes it");
        }
        None
    }

    async fn cancel(&mut self) {
        self.deliveries.cancel().await;
    }

    fn outlived(&self) -> bool {
        self.lasts
    }

    async fn close(self: Box<Self>) {
        self.deliveries.close().await;
        connection::close(&self.link.connection).await;
    }
}

/// The receipt of a message that has a connection of its own.
struct Alone {
    // The connection is dropped first, because lapin cancels a consumer that is dropped.
    held: (NodeConnection, Consumer),
    acker: Acker,
    // Held because a channel closes with its last owner.
    _channel: Channel,
    _permit: OwnedSemaphorePermit,
}

impl Receipt for Alone {
    fn answer(self: Box<Self>, disposition: Disposition) -> Written {
        let (written, wait) = oneshot::channel::<()>();
        // Without a runtime there is no connection either.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _written = written;
                receipts::write_one(&self.acker, disposition).await;
                connection::close(&self.held.0.connection).await;
            });
        }
        Written::when_dropped(wait)
    }

    fn taken_back(&self) -> Option<TakenBack> {
        receipts::taken_back(&self.acker, &self.held.0, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cancelled_consumer_leaves_its_queue_a_suspect() {
        let (suspects, url) = (Suspects::default(), AmqpUrl::new("amqp://127.0.0.1:1").expect("a URL"));
        let careful = || OneByOne::new(&url, "name", "q", 3, &suspects, CancellationToken::new());
        suspects.add("q", "it is not UTF-8");
        let mut cancelled = careful();
        cancelled.cancel().await;
        assert!(cancelled.next().await.is_none());
        assert!(suspects.why("q").is_some());
        let mut over = OneByOne { left: 0, ..careful() };
        assert!(over.next().await.is_none());
        assert!(suspects.why("q").is_none());
    }

    #[test]
    fn a_count_that_is_dropped_early_leaves_its_queue_a_suspect() {
        let suspects = Suspects::default();
        let why = "it is not UTF-8";
        let count = |left| Count { left, queue: "q".to_owned(), why, suspects: suspects.clone() };
        drop(count(0));
        assert!(suspects.why("q").is_none());
        drop(count(1));
        assert_eq!(suspects.why("q"), Some(why));
    }
}

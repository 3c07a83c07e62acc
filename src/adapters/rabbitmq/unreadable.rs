//! Messages that lapin cannot read: a property, a header's name or a routing key that is no UTF-8.
//!
//! Such a message breaks its connection off whenever it is delivered, and comes again. Only the broker's delivery limit
//! ends that, and it counts against everything else that was delivered by the same connection. So where that happened
//! each message has a connection of its own, until the broker has put the unreadable one aside.
//!
//! A queue whose order is kept has one such connection, and one message at a time by it: [`InOrder`]. RabbitMQ puts what goes
//! back behind what has gone back before (measured on 3.10 and 4.3). Closed after each message, the connection would give
//! the next one back, behind others. So only the unreadable one goes back by itself, behind what was delivered with it the
//! first time, and the others keep their order. No delivery limit is in its way: then it is at the head until somebody removes it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use lapin::{Acker, Channel, Consumer, options::BasicCancelOptions};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    closing, codec,
    connection::{AmqpUrl, Link, answer},
    consumer::{self, How},
    receipts,
    suspects::{self, Suspects},
};
use crate::{
    domain::compile::DELIVERY_LIMIT,
    ports::{BrokerError, Deliveries, Delivery, Order, Receipt},
};

/// So many connections at a time.
const CONNECTIONS: usize = 10;

/// So long without a message it is gone.
const QUIET: Duration = Duration::from_secs(5);

/// A consumer that takes each message by a connection of its own, until as many as it usually holds were readable.
pub(super) struct Careful {
    taker: Taker,
    prefetch: u16,
    suspects: Suspects,
    /// The next one, on its way.
    taking: Option<AbortOnDropHandle<Result<Taken, BrokerError>>>,
    /// So many more in a row.
    left: u16,
    unreadable: i64,
    /// By us, and that says nothing of what is in the queue.
    cancelled: bool,
    /// Then it ends.
    closed: CancellationToken,
}

/// What it takes to take a message.
#[derive(Clone)]
struct Taker {
    url: AmqpUrl,
    name: String,
    queue: String,
    connections: Arc<Semaphore>,
}

enum Taken {
    Message(Box<Delivery>),
    Unreadable,
    Nothing,
}

impl Careful {
    pub(super) fn new(url: &AmqpUrl, name: &str, queue: &str, prefetch: u16, suspects: &Suspects) -> Self {
        let connections = Arc::new(Semaphore::new(CONNECTIONS));
        Self {
            taker: Taker { url: url.clone(), name: name.to_owned(), queue: queue.to_owned(), connections },
            prefetch,
            suspects: suspects.clone(),
            taking: None,
            left: prefetch,
            unreadable: 0,
            cancelled: false,
            closed: CancellationToken::new(),
        }
    }

    /// Until the connections that it does not use are closed, too.
    pub(super) fn until(self, closed: CancellationToken) -> Self {
        Self { closed, ..self }
    }
}

impl Taker {
    async fn take(self) -> Result<Taken, BrokerError> {
        let Ok(permit) = Arc::clone(&self.connections).acquire_owned().await else { return Ok(Taken::Nothing) };
        let (link, channel) = self.url.link(&self.name).await?;
        let failed = |link: &Link, error: lapin::Error| {
            if suspects::is_unreadable(&error) {
                return Ok(Taken::Unreadable);
            }
            Err(link.error(&error, &format!("the queue {}", self.queue)))
        };
        let consumer = match consumer::begin(&channel, &self.queue, 1).await {
            Ok(consumer) => consumer,
            Err(error) => return failed(&link, error),
        };
        // In this order they are dropped, too: a consumer that is dropped is cancelled.
        let mut held = (link, consumer);
        let mut delivery = match tokio::time::timeout(QUIET, held.1.next()).await {
            Ok(Some(Ok(delivery))) => delivery,
            Ok(Some(Err(error))) => return failed(&held.0, error),
            Ok(None) | Err(_) => return Ok(Taken::Nothing),
        };
        // It holds one, so no other comes before this is answered.
        let cancelling = channel.basic_cancel(held.1.tag(), BasicCancelOptions::default());
        if let Err(error) = answer(cancelling).await {
            return failed(&held.0, error);
        }
        let message = codec::incoming(&mut delivery);
        let redelivered = delivery.redelivered;
        let receipt = Alone { held, acker: delivery.acker, _channel: channel, _permit: permit };
        Ok(Taken::Message(Box::new(Delivery { message, redelivered, receipt: Box::new(receipt) })))
    }
}

#[async_trait]
impl Deliveries for Careful {
    async fn next(&mut self) -> Option<Delivery> {
        if self.cancelled {
            return None;
        }
        while self.left > 0 {
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
                Ok(Taken::Unreadable) => {
                    if self.unreadable == 0 {
                        tracing::error!("a message in {queue} cannot be read (is its text UTF-8?); it is put aside");
                    }
                    self.unreadable += 1;
                    self.left = self.prefetch;
                    if self.unreadable > 2 * DELIVERY_LIMIT {
                        tracing::warn!("it comes again and again; has {queue} a delivery limit?");
                        tokio::time::sleep(QUIET).await;
                    }
                }
                Ok(Taken::Nothing) => break,
                Err(error) => {
                    tracing::warn!(%error, "consuming {queue} broke off");
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

    /// What it delivered goes back with the connection that it has for its own.
    async fn close(self: Box<Self>) {}
}

/// A consumer that takes one message at a time by a connection of its own, until as many as it usually holds were readable.
pub(super) struct InOrder {
    // Dropped before its connection.
    deliveries: Box<dyn Deliveries>,
    link: Arc<Link>,
    count: Count,
    /// The connection is there, and with it what it delivered.
    lasts: bool,
    /// Then it ends.
    closed: CancellationToken,
}

/// How many more must be readable until the queue is no suspect. Given up before that, it is counted again.
struct Count {
    left: u16,
    queue: String,
    suspects: Suspects,
}

impl Drop for Count {
    fn drop(&mut self) {
        if self.left > 0 {
            self.suspects.add(&self.queue);
        }
    }
}

impl InOrder {
    pub(super) async fn begin(
        url: &AmqpUrl,
        name: &str,
        queue: &str,
        prefetch: u16,
        suspects: &Suspects,
        closed: CancellationToken,
    ) -> Result<Self, BrokerError> {
        let (link, channel) = url.link(name).await?;
        let link = Arc::new(link);
        // It tells anew, of this queue alone.
        suspects.clear(queue);
        let count = Count { left: prefetch, queue: queue.to_owned(), suspects: suspects.clone() };
        let how = How { prefetch: 1, order: Order::Kept, quiet: consumer::QUIET };
        let deliveries = consumer::consume(Arc::clone(&link), channel, queue, how, suspects).await?;
        Ok(Self { deliveries, link, count, lasts: true, closed })
    }
}

#[async_trait]
impl Deliveries for InOrder {
    async fn next(&mut self) -> Option<Delivery> {
        if !self.lasts {
            return None;
        }
        let Count { left, queue, suspects } = &mut self.count;
        match self.closed.run_until_cancelled(self.deliveries.next()).await? {
            // The last one is answered, for there is room for this one. It goes back by itself, and nothing else of this round.
            Some(_) if *left == 0 => return None,
            Some(delivery) => {
                *left -= 1;
                return Some(delivery);
            }
            None => self.lasts = false,
        }
        if suspects.contains(queue) {
            tracing::error!(
                "a message in {queue} cannot be read (is its text UTF-8?), and holds up what comes until somebody removes it"
            );
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
        closing::close(&self.link.connection).await;
    }
}

/// The receipt of a message that has a connection of its own.
struct Alone {
    // Dropped in this order, too.
    held: (Link, Consumer),
    acker: Acker,
    // It closes with its last owner.
    _channel: Channel,
    _permit: OwnedSemaphorePermit,
}

#[async_trait]
impl Receipt for Alone {
    async fn acknowledge(self: Box<Self>) {
        receipts::acknowledge(&self.acker, false).await;
        closing::close(&self.held.0.connection).await;
    }

    async fn requeue(self: Box<Self>) {
        receipts::give_back(&self.acker, true).await;
        closing::close(&self.held.0.connection).await;
    }

    async fn reject(self: Box<Self>) {
        receipts::give_back(&self.acker, false).await;
        closing::close(&self.held.0.connection).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_stops_consuming_has_not_found_the_queue_readable() {
        let (suspects, url) = (Suspects::default(), AmqpUrl::new("amqp://127.0.0.1:1").expect("a URL"));
        suspects.add("q");
        let mut careful = Careful::new(&url, "name", "q", 3, &suspects);
        careful.cancel().await;
        assert!(careful.next().await.is_none());
        assert!(suspects.contains("q"));
        careful = Careful::new(&url, "name", "q", 3, &suspects);
        careful.left = 0;
        assert!(careful.next().await.is_none());
        assert!(!suspects.contains("q"));
    }

    #[test]
    fn what_is_not_counted_to_its_end_is_counted_again() {
        let suspects = Suspects::default();
        let count = |left| Count { left, queue: "q".to_owned(), suspects: suspects.clone() };
        drop(count(0));
        assert!(!suspects.contains("q"));
        drop(count(1));
        assert!(suspects.contains("q"));
    }
}

//! Messages that lapin cannot read: a property, a header's name or a routing key that is no UTF-8.
//!
//! Such a message breaks its connection off whenever it is delivered, and comes again. Only the broker's delivery limit
//! ends that, and it counts against everything else that was delivered by the same connection. So where that happened
//! each message has a connection of its own, until the broker has put the unreadable one aside.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use lapin::{Acker, Channel, Connection, Consumer, ErrorKind, options::BasicCancelOptions};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{codec, connection::AmqpUrl, consumer, publisher, receipts};
use crate::{
    domain::compile::DELIVERY_LIMIT,
    ports::{BrokerError, Deliveries, Delivery, Order, Receipt},
};

/// So many connections at a time.
const CONNECTIONS: usize = 10;

/// So long without a message it is gone.
const QUIET: Duration = Duration::from_secs(5);

/// Queues whose consumer broke off because of such a message, in them or in another queue of the same connection.
#[derive(Clone, Default)]
pub(super) struct Suspects(Arc<Mutex<BTreeSet<String>>>);

impl Suspects {
    /// Notes the queue whose consumer broke off with this error, if that was the cause.
    pub(super) fn note(&self, queue: &str, error: &lapin::Error) {
        if is_unreadable(error) {
            self.queues().insert(queue.to_owned());
        }
    }

    pub(super) fn contains(&self, queue: &str) -> bool {
        self.queues().contains(queue)
    }

    fn clear(&self, queue: &str) {
        self.queues().remove(queue);
    }

    fn queues(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_unreadable(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ParsingError(_))
}

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
    order: Order,
    connections: Arc<Semaphore>,
}

enum Taken {
    Message(Box<Delivery>),
    Unreadable,
    Nothing,
}

impl Careful {
    pub(super) fn new(
        url: &AmqpUrl,
        name: &str,
        queue: &str,
        (prefetch, order): (u16, Order),
        suspects: &Suspects,
    ) -> Self {
        // Two connections that end at a time would give their messages back in any order.
        let connections = if order == Order::Kept { 1 } else { CONNECTIONS };
        let connections = Arc::new(Semaphore::new(connections));
        Self {
            taker: Taker { url: url.clone(), name: name.to_owned(), queue: queue.to_owned(), order, connections },
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
        let failed = |error: lapin::Error| {
            if is_unreadable(&error) {
                return Ok(Taken::Unreadable);
            }
            Err(self.url.error(&error, &format!("the queue {}", self.queue)))
        };
        let connection = self.url.connect(&self.name).await?;
        let channel = connection.create_channel().await.map_err(|error| self.url.error(&error, "a channel"))?;
        let consumer = match consumer::begin(&channel, &self.queue, 1).await {
            Ok(consumer) => consumer,
            Err(error) => return failed(error),
        };
        // In this order they are dropped, too: a consumer that is dropped is cancelled.
        let mut held = (connection, consumer);
        let mut delivery = match tokio::time::timeout(QUIET, held.1.next()).await {
            Ok(Some(Ok(delivery))) => delivery,
            Ok(Some(Err(error))) => return failed(error),
            Ok(None) | Err(_) => return Ok(Taken::Nothing),
        };
        // It holds one, so no other comes before this is answered. Where there is a single active consumer, the next one
        // would be active from here on, and go past a message that is given back.
        if self.order == Order::Any
            && let Err(error) = channel.basic_cancel(held.1.tag(), BasicCancelOptions::default()).await
        {
            return failed(error);
        }
        let message = codec::incoming(&mut delivery);
        let receipt = Alone { held, acker: delivery.acker, _channel: channel, _permit: permit };
        Ok(Taken::Message(Box::new(Delivery { message, receipt: Box::new(receipt) })))
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

/// The receipt of a message that has a connection of its own.
struct Alone {
    // Dropped in this order, too.
    held: (Connection, Consumer),
    acker: Acker,
    // It closes with its last owner.
    _channel: Channel,
    _permit: OwnedSemaphorePermit,
}

#[async_trait]
impl Receipt for Alone {
    async fn acknowledge(self: Box<Self>) {
        receipts::acknowledge(&self.acker, false).await;
        publisher::close(&self.held.0).await;
    }

    async fn requeue(self: Box<Self>) {
        receipts::give_back(&self.acker, true).await;
        publisher::close(&self.held.0).await;
    }

    async fn reject(self: Box<Self>) {
        receipts::give_back(&self.acker, false).await;
        publisher::close(&self.held.0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_stops_consuming_has_not_found_the_queue_readable() {
        let (suspects, url) = (Suspects::default(), AmqpUrl::new("amqp://127.0.0.1:1").expect("a URL"));
        suspects.queues().insert("q".to_owned());
        let mut careful = Careful::new(&url, "name", "q", (3, Order::Any), &suspects);
        careful.cancel().await;
        assert!(careful.next().await.is_none());
        assert!(suspects.contains("q"));
        careful = Careful::new(&url, "name", "q", (3, Order::Any), &suspects);
        careful.left = 0;
        assert!(careful.next().await.is_none());
        assert!(!suspects.contains("q"));
    }
}

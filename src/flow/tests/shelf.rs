//! A broker with queues.

use std::collections::VecDeque;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::*;

/// Queues that heed the prefetch, and take back what is given back.
#[derive(Clone, Default)]
pub(super) struct Shelf(Arc<Queues>);

#[derive(Default)]
struct Queues {
    ready: Mutex<HashMap<String, VecDeque<Incoming>>>,
    more: Notify,
    came_back: AtomicUsize,
    /// A consumer ends after as many deliveries as it may hold, and they stay with it.
    careful: AtomicBool,
}

impl Queues {
    fn put(&self, queue: &str, message: Incoming) {
        self.ready.lock().expect("no panic").entry(queue.to_owned()).or_default().push_front(message);
        self.more.notify_waiters();
    }

    fn pop(&self, queue: &str) -> Option<Incoming> {
        self.ready.lock().expect("no panic").get_mut(queue)?.pop_front()
    }
}

impl Shelf {
    /// Puts it into the queue that its key leads to.
    pub(super) fn put(&self, message: Incoming) {
        let (event_type, route) = message.routing_key.split_once('.').expect("two words");
        let exchange = if route == "aside" { "aside" } else { "processor" };
        self.0.put(&format!("t.{exchange}.{event_type}"), message);
    }

    fn lend(&self, queue: &str, message: Incoming, room: OwnedSemaphorePermit) -> Delivery {
        let (shelf, lent) = (self.clone(), Some(message.clone()));
        Delivery {
            message,
            redelivered: false,
            receipt: Box::new(OnLoan { shelf, queue: queue.to_owned(), message: lent, _room: room }),
        }
    }

    /// From now on a consumer ends after as many deliveries as it may hold, and they stay with it.
    pub(super) fn be_careful(&self) {
        self.0.careful.store(true, Ordering::SeqCst);
    }

    /// How many deliveries came back.
    pub(super) fn came_back(&self) -> usize {
        self.0.came_back.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Broker for Shelf {
    async fn publish(&self, _: Message) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn consume(&self, queue: &str, prefetch: u16, _: Order) -> Result<Box<dyn Deliveries>, BrokerError> {
        let room = Arc::new(Semaphore::new(prefetch.into()));
        let left = self.0.careful.load(Ordering::SeqCst).then_some(prefetch);
        Ok(Box::new(Taking { shelf: self.clone(), queue: queue.to_owned(), room, left, ended: false }))
    }

    async fn take(&self, queue: &str) -> Result<Option<Delivery>, BrokerError> {
        let room = Arc::new(Semaphore::new(1)).acquire_owned().await.expect("it is open");
        Ok(self.0.pop(queue).map(|message| self.lend(queue, message, room)))
    }

    async fn ready(&self, queue: &str) -> Result<u64, BrokerError> {
        let ready = self.0.ready.lock().expect("no panic");
        Ok(ready.get(queue).map_or(0, |queue| queue.len() as u64))
    }

    async fn identity(&self) -> Result<BrokerIdentity, BrokerError> {
        Ok(BrokerIdentity::default())
    }

    async fn require(&self, _: &[String], _: &[String]) -> Result<(), BrokerError> {
        Ok(())
    }
}

struct Taking {
    shelf: Shelf,
    queue: String,
    room: Arc<Semaphore>,
    /// So many more, where it is careful.
    left: Option<u16>,
    ended: bool,
}

#[async_trait]
impl Deliveries for Taking {
    async fn next(&mut self) -> Option<Delivery> {
        if self.ended || self.left == Some(0) {
            return None;
        }
        let room = Arc::clone(&self.room).acquire_owned().await.expect("it is open");
        loop {
            let more = self.shelf.0.more.notified();
            if let Some(message) = self.shelf.0.pop(&self.queue) {
                self.left = self.left.map(|left| left - 1);
                return Some(self.shelf.lend(&self.queue, message, room));
            }
            more.await;
        }
    }

    async fn cancel(&mut self) {
        self.ended = true;
    }

    fn outlived(&self) -> bool {
        self.left.is_some()
    }

    async fn close(self: Box<Self>) {}
}

/// It comes back when it is dropped, unless it was answered.
struct OnLoan {
    shelf: Shelf,
    queue: String,
    message: Option<Incoming>,
    _room: OwnedSemaphorePermit,
}

impl Drop for OnLoan {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.shelf.0.came_back.fetch_add(1, Ordering::SeqCst);
            self.shelf.0.put(&self.queue, message);
        }
    }
}

#[async_trait]
impl Receipt for OnLoan {
    async fn acknowledge(mut self: Box<Self>) {
        self.message = None;
    }

    async fn requeue(self: Box<Self>) {}

    async fn reject(mut self: Box<Self>) {
        self.message = None;
    }
}

//! Redis answers a ping and no claim: what a worker gives back meanwhile.

use std::collections::{HashMap, VecDeque};

use rstest::rstest;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::*;

/// Queues that heed the prefetch, and take back what is given back.
#[derive(Clone, Default)]
struct Shelf(Arc<Queues>);

#[derive(Default)]
struct Queues {
    ready: Mutex<HashMap<String, VecDeque<Incoming>>>,
    more: Notify,
    came_back: AtomicUsize,
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

#[async_trait]
impl Broker for Shelf {
    async fn publish(&self, _: Message) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn consume(&self, queue: &str, prefetch: u16, _: Order) -> Result<Box<dyn Deliveries>, BrokerError> {
        let room = Arc::new(Semaphore::new(prefetch.into()));
        Ok(Box::new(Taking { shelf: self.clone(), queue: queue.to_owned(), room, ended: false }))
    }

    async fn take(&self, _: &str) -> Result<Option<Delivery>, BrokerError> {
        Ok(None)
    }

    async fn ready(&self, _: &str) -> Result<u64, BrokerError> {
        Ok(0)
    }

    async fn require(&self, _: &[String], _: &[String]) -> Result<(), BrokerError> {
        Ok(())
    }
}

struct Taking {
    shelf: Shelf,
    queue: String,
    room: Arc<Semaphore>,
    ended: bool,
}

#[async_trait]
impl Deliveries for Taking {
    async fn next(&mut self) -> Option<Delivery> {
        if self.ended {
            return None;
        }
        let room = Arc::clone(&self.room).acquire_owned().await.expect("it is open");
        loop {
            let more = self.shelf.0.more.notified();
            if let Some(message) = self.shelf.0.pop(&self.queue) {
                let Self { shelf, queue, .. } = self;
                let receipt =
                    OnLoan { shelf: shelf.clone(), queue: queue.clone(), message: Some(message.clone()), _room: room };
                return Some(Delivery { message, receipt: Box::new(receipt) });
            }
            more.await;
        }
    }

    async fn cancel(&mut self) {
        self.ended = true;
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

#[rstest]
#[case::two_types("mail", "keen")]
#[case::one_of_them_keeps_order("mail", "strict")]
#[tokio::test(start_paused = true)]
async fn what_is_prefetched_is_given_back_once_and_not_with_every_ping(#[case] one: &str, #[case] other: &str) {
    const EACH: usize = 50;
    let (shelf, fake) = (Shelf::default(), Arc::new(Fake { deaf: true.into(), ..Fake::default() }));
    for event_type in [one, other] {
        for n in 0..EACH {
            let mut message = incoming(&format!("{event_type}.now"), &[]);
            message.properties.message_id = Some(format!("{event_type} {n}"));
            shelf.0.put(&format!("t.processor.{event_type}"), message);
        }
    }
    let stop = CancellationToken::new();
    let worker = Worker::new(topology(), Arc::new(shelf.clone()), fake.clone(), Arc::new(Noon));
    let done = |_| async { Ok::<_, String>(Outcome::Done) };
    let worker = tokio::spawn(worker.handle(one, done).handle(other, done).run(stop.clone()));
    tokio::time::sleep(Duration::from_mins(10)).await;
    let came_back = shelf.0.came_back.load(Ordering::SeqCst);
    assert!(came_back <= 2 * EACH, "{came_back}");
    fake.deaf.store(false, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_mins(1)).await;
    stop.cancel();
    let summary = worker.await.expect("no panic").expect("it was told to stop");
    assert_eq!(summary.done, 2 * EACH as u64);
    let came_back = shelf.0.came_back.load(Ordering::SeqCst);
    assert!(came_back <= 2 * EACH + 2, "{came_back}");
}

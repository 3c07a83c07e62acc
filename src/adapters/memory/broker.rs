//! A broker in memory that follows RabbitMQ's rules, for tests.

#[cfg(test)]
use std::sync::atomic::Ordering;
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::Notify;

use super::queues::{self, Queues};
#[cfg(test)]
use super::script::Script;
use crate::{
    domain::{
        compile::Desired,
        time::until,
        wire::{Headers, Incoming, Message, Properties, Value},
    },
    ports::{Broker, BrokerError, BrokerIdentity, Clock, Deliveries, Delivery, Order, Receipt},
};

/// Runs a compiled topology without a server, by RabbitMQ's rules for routing, TTLs, dead letters and returned
/// deliveries. The time is that of a given clock. Clones share one broker.
#[derive(Clone)]
pub struct MemoryBroker {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Wakes the consumers when a message may be ready, or when a consumer may have room for another delivery.
    changed: Notify,
    #[cfg(test)]
    script: Arc<Script>,
}

struct State {
    queues: Queues<Content>,
    /// The deliveries that wait for their acknowledgement, by delivery tag.
    unacknowledged: BTreeMap<u64, Unacknowledged>,
    /// The queue of each consumer, by the consumer's number.
    consumers: BTreeMap<u64, String>,
    /// The highest number that a consumer or a delivery has.
    next: u64,
    #[cfg(test)]
    script: Arc<Script>,
}

struct Unacknowledged {
    consumer: Option<u64>,
    queue: String,
    message: queues::Message<Content>,
}

#[derive(Clone, Debug)]
struct Content {
    properties: Properties,
    body: Bytes,
}

/// A message that is ready in a queue.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The queue.
    pub queue: String,
    /// The message as it would be delivered.
    pub message: Incoming,
    /// When the message's TTL in this queue ends.
    pub expires: Option<Timestamp>,
}

impl MemoryBroker {
    /// Returns a broker on which `desired` is declared and every queue is empty.
    #[must_use]
    pub fn new(desired: &Desired, clock: Arc<dyn Clock>) -> Self {
        Self { shared: Arc::new(Shared::new(desired, clock)) }
    }

    /// Returns a broker with the faults and the diary of `script`.
    #[cfg(test)]
    pub(crate) fn scripted(desired: &Desired, clock: Arc<dyn Clock>, script: Arc<Script>) -> Self {
        let state = Mutex::new(State { script: script.clone(), ..State::new(desired) });
        Self { shared: Arc::new(Shared { state, script, ..Shared::new(desired, clock) }) }
    }

    /// Puts a message into a queue without routing it. Its `x-delivery-count` counts as its number of returns.
    #[cfg(test)]
    pub(crate) fn put(&self, queue: &str, message: Incoming) {
        let Incoming { routing_key, properties, body } = message;
        let returns = i64::from(crate::domain::wire::returns(&properties));
        let message = queues::Message::new(&routing_key, Content { properties, body });
        self.shared.state().queues.put(queue, queues::Message { returns, ..message });
        self.shared.changed.notify_waiters();
    }

    /// Returns the messages that are ready in all queues, by queue and in the order of delivery.
    #[must_use]
    pub fn waiting(&self) -> Vec<Waiting> {
        let state = self.shared.state();
        let waiting = |queue: &str, message: &queues::Message<Content>| Waiting {
            queue: queue.to_owned(),
            message: state.incoming(queue, message),
            expires: message.expires.and_then(timestamp),
        };
        let all = state.queues.ready();
        all.flat_map(|(queue, messages)| messages.map(move |message| waiting(queue, message))).collect()
    }
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBroker").finish_non_exhaustive()
    }
}

impl Shared {
    fn new(desired: &Desired, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::new(State::new(desired)),
            changed: Notify::new(),
            #[cfg(test)]
            script: Arc::default(),
        }
    }

    /// Locks the state and advances it to the clock's time.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.queues.advance_to(u64::try_from(self.clock.now().as_millisecond()).unwrap_or(0));
        state
    }

    /// Routes a message. Returns the number of queues that refused it, or `None` if the exchange does not exist.
    fn publish(&self, exchange: &str, message: &queues::Message<Content>) -> Option<usize> {
        let mut state = self.state();
        let has_exchange = state.queues.routes().has_exchange(exchange);
        let refusals = has_exchange.then(|| state.queues.publish(exchange, message));
        drop(state);
        self.changed.notify_waiters();
        refusals
    }

    /// Takes the message at the head of a queue and notes it as unacknowledged.
    fn deliver(self: &Arc<Self>, state: &mut State, consumer: Option<u64>, queue: &str) -> Option<Delivery> {
        let message = state.queues.take(queue)?;
        let (incoming, redelivered) = (state.incoming(queue, &message), message.returns > 0);
        let tag = state.number();
        state.unacknowledged.insert(tag, Unacknowledged { consumer, queue: queue.to_owned(), message });
        Some(Delivery {
            message: incoming,
            redelivered,
            receipt: Box::new(Tag { shared: Arc::clone(self), number: tag }),
        })
    }

    /// Settles a delivery, unless it is settled already.
    fn settle(&self, tag: u64, settle: impl FnOnce(&mut State, Unacknowledged)) {
        let mut state = self.state();
        if let Some(delivery) = state.unacknowledged.remove(&tag) {
            settle(&mut state, delivery);
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// Gives a delivery back to its queue, unless it is settled already.
    fn give_back(&self, tag: u64) {
        self.settle(tag, State::give_back);
    }
}

impl State {
    fn new(desired: &Desired) -> Self {
        Self {
            queues: Queues::new(desired),
            unacknowledged: BTreeMap::new(),
            consumers: BTreeMap::new(),
            next: 0,
            #[cfg(test)]
            script: Arc::default(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn give_back(&mut self, Unacknowledged { queue, message, .. }: Unacknowledged) {
        #[cfg(test)]
        if self.script.forgets_return() {
            return;
        }
        self.queues.give_back(&queue, message);
    }

    /// Whether the queue delivers to this consumer. With [`Order::Kept`] only the oldest consumer is active.
    fn is_active(&self, consumer: u64, queue: &str, order: Order) -> bool {
        let first = || self.consumers.iter().find(|(_, other)| *other == queue);
        order == Order::Any || first().is_some_and(|(first, _)| *first == consumer)
    }

    fn has_room(&self, consumer: u64, prefetch: u16) -> bool {
        let held = self.unacknowledged.values().filter(|delivery| delivery.consumer == Some(consumer)).count();
        prefetch == 0 || held < usize::from(prefetch)
    }

    fn require(&self, queue: &str) -> Result<(), BrokerError> {
        if self.queues.has_queue(queue) {
            return Ok(());
        }
        Err(missing_queue(queue))
    }

    /// Returns a message as it is delivered, with the headers that RabbitMQ adds.
    fn incoming(&self, queue: &str, message: &queues::Message<Content>) -> Incoming {
        let Content { mut properties, body } = message.content.clone();
        let headers = &mut properties.headers;
        if message.returns > 0 && self.queues.counts_returns(queue) {
            headers.insert("x-delivery-count".to_owned(), Value::I64(message.returns));
        }
        if !message.deaths.is_empty() {
            let death = |(queue, death): &(String, queues::Death)| {
                let entry = [("queue", queue.clone()), ("reason", death.to_string())];
                Value::Table(Headers::from(entry.map(|(name, text)| (name.to_owned(), Value::text(&text)))))
            };
            headers.insert("x-death".to_owned(), Value::Array(message.deaths.iter().map(death).collect()));
        }
        Incoming { routing_key: message.key.clone(), properties, body }
    }
}

fn missing_queue(name: &str) -> BrokerError {
    BrokerError::Missing { object: format!("the queue {name}") }
}

fn missing_exchange(name: &str) -> BrokerError {
    BrokerError::Missing { object: format!("the exchange {name}") }
}

fn timestamp(millis: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(millis).ok()?).ok()
}

#[async_trait]
impl Broker for MemoryBroker {
    async fn publish(&self, message: Message) -> Result<(), BrokerError> {
        #[cfg(test)]
        self.shared.script.publish(&message).await?;
        let Message { exchange, routing_key, mut properties, body } = message;
        // RabbitMQ 4 ignores this header in messages that clients publish.
        properties.headers.remove("x-death");
        let message = queues::Message::new(&routing_key, Content { properties, body });
        let Some(refusals) = self.shared.publish(&exchange, &message) else {
            return Err(missing_exchange(&exchange));
        };
        #[cfg(test)]
        self.shared.script.confirm().await;
        match refusals {
            0 => Ok(()),
            _ => Err(BrokerError::Nacked { exchange, reason: "a queue is full".to_owned() }),
        }
    }

    async fn consume(&self, queue: &str, prefetch: u16, order: Order) -> Result<Box<dyn Deliveries>, BrokerError> {
        #[cfg(test)]
        self.shared.script.consume()?;
        let mut state = self.shared.state();
        state.require(queue)?;
        let number = state.number();
        state.consumers.insert(number, queue.to_owned());
        let (shared, queue) = (Arc::clone(&self.shared), queue.to_owned());
        #[cfg(test)]
        let left = shared.script.careful.load(Ordering::SeqCst).then_some(prefetch);
        Ok(Box::new(Consumer {
            shared,
            number,
            queue,
            prefetch,
            order,
            #[cfg(test)]
            left,
        }))
    }

    async fn take(&self, queue: &str) -> Result<Option<Delivery>, BrokerError> {
        let mut state = self.shared.state();
        state.require(queue)?;
        Ok(self.shared.deliver(&mut state, None, queue))
    }

    async fn ready(&self, queue: &str) -> Result<u64, BrokerError> {
        let count = self.shared.state().queues.count(queue);
        let count = count.ok_or_else(|| missing_queue(queue))?;
        Ok(u64::try_from(count).unwrap_or(u64::MAX))
    }

    async fn require(&self, exchanges: &[String], queues: &[String]) -> Result<(), BrokerError> {
        let state = self.shared.state();
        if let Some(missing) = exchanges.iter().find(|exchange| !state.queues.routes().has_exchange(exchange)) {
            return Err(missing_exchange(missing));
        }
        queues.iter().try_for_each(|queue| state.require(queue))
    }

    async fn identity(&self) -> Result<BrokerIdentity, BrokerError> {
        Ok(BrokerIdentity { cluster_name: Some("memory".to_owned()), version: None })
    }
}

struct Consumer {
    shared: Arc<Shared>,
    number: u64,
    queue: String,
    prefetch: u16,
    order: Order,
    /// The number of deliveries that are left until the consumer ends, if a test limits them.
    #[cfg(test)]
    left: Option<u16>,
}

impl Consumer {
    /// Returns the next delivery, or `None` once the consumer is cancelled. Without a message the error is the time of
    /// the next expiry, which may bring one.
    fn look(&self) -> Result<Option<Delivery>, Option<Timestamp>> {
        let mut state = self.shared.state();
        if !state.consumers.contains_key(&self.number) {
            return Ok(None);
        }
        if state.is_active(self.number, &self.queue, self.order)
            && state.has_room(self.number, self.prefetch)
            && let Some(delivery) = self.shared.deliver(&mut state, Some(self.number), &self.queue)
        {
            return Ok(Some(delivery));
        }
        Err(state.queues.next_expiry().and_then(|(at, _)| timestamp(at)))
    }

    fn cancel_now(&self) {
        let was_consuming = self.shared.state().consumers.remove(&self.number).is_some();
        if was_consuming {
            self.shared.changed.notify_waiters();
        }
    }
}

#[async_trait]
impl Deliveries for Consumer {
    async fn next(&mut self) -> Option<Delivery> {
        #[cfg(test)]
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            // Enabled before the look, so that a change between the look and the wait is not missed.
            changed.as_mut().enable();
            let expiry = match self.look() {
                Ok(delivery) => return delivery,
                Err(expiry) => expiry,
            };
            let expired = async {
                match expiry {
                    Some(at) => tokio::time::sleep(until(self.shared.clock.now(), at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = expired => {}
            }
        }
    }

    async fn cancel(&mut self) {
        self.cancel_now();
    }

    #[cfg(test)]
    fn outlived(&self) -> bool {
        self.left.is_some()
    }

    async fn close(self: Box<Self>) {
        #[cfg(test)]
        self.shared.script.note_of_broker("close");
        let mut state = self.shared.state();
        let of_this = |delivery: &Unacknowledged| delivery.consumer == Some(self.number);
        for (_, delivery) in state.unacknowledged.extract_if(.., |_, delivery| of_this(delivery)).collect::<Vec<_>>() {
            state.give_back(delivery);
        }
        // Dropping the consumer cancels it, which wakes the others.
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.cancel_now();
    }
}

/// The delivery tag. A delivery goes back to its queue when its tag is dropped, as if the connection was lost.
struct Tag {
    shared: Arc<Shared>,
    number: u64,
}

#[async_trait]
impl Receipt for Tag {
    async fn acknowledge(self: Box<Self>) {
        #[cfg(test)]
        self.shared.script.note_of_broker("acknowledge");
        self.shared.settle(self.number, |_, _| {});
    }

    async fn requeue(self: Box<Self>) {
        #[cfg(test)]
        self.shared.script.note_of_broker("give back");
        self.shared.give_back(self.number);
    }

    async fn reject(self: Box<Self>) {
        #[cfg(test)]
        self.shared.script.note_of_broker("reject");
        self.shared.settle(self.number, |state, Unacknowledged { queue, message, .. }| {
            state.queues.reject(&queue, message);
        });
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        self.shared.give_back(self.number);
    }
}

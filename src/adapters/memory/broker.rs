//! A broker in memory that follows RabbitMQ's rules.

use std::{
    fmt,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    consumer::Consumer,
    follower::Follower,
    queues,
    script::Script,
    vhost::{Content, Vhost, VhostState, missing_exchange, missing_queue, timestamp},
};
use crate::{
    domain::{
        compile::Desired,
        wire::{Incoming, Message},
    },
    ports::{Broker, BrokerError, BrokerIdentity, Clock, Confirming, Deliveries, Delivery, Order, Ready},
};

/// Runs a compiled topology without a server, by RabbitMQ's rules for routing, TTLs, dead letters and returned
/// deliveries. The time is that of a given clock. Clones share one broker.
#[derive(Clone)]
pub struct MemoryBroker {
    shared: Arc<Vhost>,
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
        Self { shared: Arc::new(Vhost::new(desired, clock)) }
    }

    /// Returns a broker with the faults and the diary of `script`.
    #[cfg(any(test, feature = "internals"))]
    pub fn scripted(desired: &Desired, clock: Arc<dyn Clock>, script: Arc<Script>) -> Self {
        let script = Some(script);
        let state = Mutex::new(VhostState { script: script.clone(), ..VhostState::new(desired) });
        Self { shared: Arc::new(Vhost { state, script, ..Vhost::new(desired, clock) }) }
    }

    /// Declares a topology beside what is there. A queue with other arguments than before keeps its messages, and each of them the end
    /// of its TTL.
    #[cfg(any(test, feature = "internals"))]
    pub fn declare(&self, desired: &Desired) {
        self.shared.state().declare(desired);
        self.shared.changed.notify_waiters();
    }

    /// Returns the counts of a queue: its ready messages, its deliveries that wait for their acknowledgement, and its consumers.
    /// `None` if there is no such queue.
    #[must_use]
    #[cfg(feature = "internals")]
    pub fn counts(&self, queue: &str) -> Option<[usize; 3]> {
        let state = self.shared.state();
        let ready = state.queues.count(queue)?;
        let delivered = state.unacknowledged.values().filter(|delivery| delivery.queue == queue).count();
        Some([ready, delivered, state.consumers.values().filter(|consumed| *consumed == queue).count()])
    }

    /// Puts a message into a queue without routing it. Its `x-delivery-count` counts as its number of returns.
    #[cfg(any(test, feature = "testing", feature = "internals"))]
    pub fn put(&self, queue: &str, message: Incoming) {
        let Incoming { routing_key, properties, body } = message;
        let returns = i64::from(crate::domain::wire::returns(&properties));
        let message = queues::Message::new(&routing_key, Content { properties, body });
        self.shared.state().queues.put(queue, queues::Message { returns, ..message });
        self.shared.changed.notify_waiters();
    }

    /// Returns the messages of a stream, the oldest first. `None` if there is no such stream.
    #[must_use]
    #[cfg(feature = "internals")]
    pub fn messages_of(&self, stream: &str) -> Option<Vec<bytes::Bytes>> {
        let state = self.shared.state();
        Some(state.queues.stream(stream)?.iter().map(|message| message.content.body.clone()).collect())
    }

    /// Returns the last message of a stream.
    #[must_use]
    #[cfg(any(test, feature = "testing", feature = "internals"))]
    pub fn last_of(&self, stream: &str) -> Option<bytes::Bytes> {
        Some(self.shared.state().queues.stream(stream)?.back()?.content.body.clone())
    }

    /// Takes back what consumers hold, as when a connection is lost.
    #[cfg(test)]
    pub(crate) fn take_back(&self) {
        let held: Vec<u64> = self.shared.state().unacknowledged.keys().copied().collect();
        for tag in held {
            self.shared.give_back(tag);
        }
    }

    /// Removes all messages of a stream.
    #[cfg(test)]
    pub(crate) fn empty_stream(&self, stream: &str) {
        self.shared.state().queues.empty(stream);
    }

    /// Returns the messages that are ready in all queues but streams, by queue and in the order of delivery.
    #[must_use]
    pub fn waiting(&self) -> Vec<Waiting> {
        let state = self.shared.state();
        let waiting = |queue: &str, message: &queues::Message<Content>| Waiting {
            queue: queue.to_owned(),
            message: state.incoming(queue, message),
            expires: message.expires.and_then(timestamp),
        };
        let all = state.queues.ready().filter(|(queue, _)| state.queues.stream(queue).is_none());
        all.flat_map(|(queue, messages)| messages.map(move |message| waiting(queue, message))).collect()
    }
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBroker").finish_non_exhaustive()
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    async fn record(&self, record: Message) -> Result<Confirming, BrokerError> {
        if self.shared.script.as_ref().is_some_and(|script| script.are_records_scripted) {
            return self.send(record).await;
        }
        let Message { exchange, routing_key, properties, body } = record;
        let taken = self.shared.publish(&exchange, &queues::Message::new(&routing_key, Content { properties, body }));
        Ok(Box::pin(std::future::ready(taken)))
    }

    async fn send(&self, message: Message) -> Result<Confirming, BrokerError> {
        if let Some(script) = &self.shared.script {
            script.publish(&message).await?;
        }
        let Message { exchange, routing_key, mut properties, body } = message;
        // RabbitMQ 4 ignores this header in messages that clients publish.
        properties.headers.remove("x-death");
        let message = queues::Message::new(&routing_key, Content { properties, body });
        let taken = self.shared.publish(&exchange, &message);
        let script = self.shared.script.clone();
        Ok(Box::pin(async move {
            if let Some(script) = script {
                script.confirm().await;
            }
            taken
        }))
    }

    async fn consume(
        &self,
        queue: &str,
        prefetch: u16,
        order: Order,
        _unavailable: Option<&str>,
        _hold: Option<Duration>,
    ) -> Result<Box<dyn Deliveries>, BrokerError> {
        if let Some(script) = &self.shared.script {
            script.consume()?;
            script.consume_answers().await;
        }
        let mut state = self.shared.state();
        state.require(queue)?;
        let number = state.number();
        state.consumers.insert(number, queue.to_owned());
        let (shared, queue) = (Arc::clone(&self.shared), queue.to_owned());
        let is_careful = shared.script.as_ref().is_some_and(|script| script.careful.load(Ordering::SeqCst));
        Ok(Box::new(Consumer { shared, number, queue, prefetch, order, left: is_careful.then_some(prefetch) }))
    }

    async fn follow(&self, stream: &str) -> Result<Box<dyn Deliveries>, BrokerError> {
        Ok(Box::new(Follower::open(&self.shared, stream)?))
    }

    async fn take(&self, queue: &str) -> Result<Option<Delivery>, BrokerError> {
        let taken = {
            let mut state = self.shared.state();
            state.require(queue)?;
            self.shared.deliver(&mut state, None, queue)
        };
        if let Some(script) = &self.shared.script {
            script.take_answers().await;
        }
        Ok(taken)
    }

    #[cfg(feature = "internals")]
    async fn look(&self, queue: &str) -> Result<Box<dyn crate::ports::Look>, BrokerError> {
        Ok(Box::new(super::look::QueueLook::open(&self.shared, queue)?))
    }

    async fn ready(&self, queue: &str) -> Result<Ready, BrokerError> {
        if self.shared.script.as_ref().is_some_and(|script| script.leaderless.load(Ordering::SeqCst)) {
            return Ok(Ready { messages: 0, consumers: 0 });
        }
        let state = self.shared.state();
        let messages = state.queues.count(queue).ok_or_else(|| missing_queue(queue))?;
        let consumers = state.consumers.values().filter(|consumed| *consumed == queue).count();
        let [messages, consumers] = [messages, consumers].map(|count| u64::try_from(count).unwrap_or(u64::MAX));
        Ok(Ready { messages, consumers })
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

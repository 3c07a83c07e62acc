//! The state that clones of a broker in memory share: its queues, and the deliveries that wait for their
//! acknowledgement.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::Notify;

use super::{
    queues::{self, Queues},
    script::Script,
};
use crate::{
    domain::{
        compile::Desired,
        names,
        switches::Switches,
        wire::{Headers, Incoming, Properties, Value},
    },
    ports::{BrokerError, Clock, Delivery, Disposition, Order, Receipt, TakenBack, Written},
};

/// A virtual host in memory, shared by its broker, consumers and receipts.
pub(super) struct Vhost {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) state: Mutex<VhostState>,
    /// Wakes the consumers when a message may be ready, or when a consumer may have room for another delivery.
    pub(super) changed: Notify,
    pub(super) script: Option<Arc<Script>>,
}

/// The messages of a virtual host, ready or delivered.
pub(super) struct VhostState {
    pub(super) queues: Queues<Content>,
    /// The deliveries that wait for their acknowledgement, by delivery tag.
    pub(super) unacknowledged: BTreeMap<u64, Unacknowledged>,
    /// The queue of each consumer, by the consumer's number.
    pub(super) consumers: BTreeMap<u64, String>,
    /// The queues that somebody looks at.
    #[cfg(feature = "internals")]
    pub(super) looked_at: BTreeSet<String>,
    /// The highest number that a consumer or a delivery has.
    pub(super) next: u64,
    pub(super) script: Option<Arc<Script>>,
}

pub(super) struct Unacknowledged {
    pub(super) consumer: Option<u64>,
    pub(super) queue: String,
    pub(super) message: queues::Message<Content>,
}

#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) properties: Properties,
    pub(super) body: Bytes,
}

impl Vhost {
    pub(super) fn new(desired: &Desired, clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::new(VhostState::new(desired)), changed: Notify::new(), script: None }
    }

    /// Locks the state and advances it to the clock's time.
    pub(super) fn state(&self) -> MutexGuard<'_, VhostState> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.queues.advance_to(u64::try_from(self.clock.now().as_millisecond()).unwrap_or(0));
        state
    }

    /// Notes a call in the diary of a test.
    pub(super) fn note(&self, call: &str) {
        if let Some(script) = &self.script {
            script.note_of_broker(call);
        }
    }

    /// Routes a message with the flag `mandatory`.
    pub(super) fn publish(&self, exchange: &str, message: &queues::Message<Content>) -> Result<(), BrokerError> {
        let mut state = self.state();
        let routes = state.queues.routes();
        if !routes.has_exchange(exchange) {
            return Err(missing_exchange(exchange));
        }
        if routes.of(exchange, &message.key).is_empty() {
            if exchange.is_empty() {
                return Err(missing_queue(&message.key));
            }
            let (exchange, routing_key) = (exchange.to_owned(), message.key.clone());
            return Err(BrokerError::Unroutable { exchange, routing_key });
        }
        let refusals = state.queues.publish(exchange, message);
        drop(state);
        self.changed.notify_waiters();
        if refusals > 0 {
            return Err(BrokerError::Nacked { exchange: exchange.to_owned(), reason: "a queue is full".to_owned() });
        }
        Ok(())
    }

    /// Takes the message at the head of a queue and notes it as unacknowledged.
    pub(super) fn deliver(
        self: &Arc<Self>,
        state: &mut VhostState,
        consumer: Option<u64>,
        queue: &str,
    ) -> Option<Delivery> {
        let message = state.queues.take(queue)?;
        let (incoming, redelivered) = (state.incoming(queue, &message), message.returns > 0);
        let tag = state.number();
        state.unacknowledged.insert(tag, Unacknowledged { consumer, queue: queue.to_owned(), message });
        Some(Delivery {
            message: incoming,
            priority: None,
            redelivered,
            receipt: Box::new(Tag { shared: Arc::clone(self), number: tag }),
        })
    }

    /// Settles a delivery, unless it is settled already.
    fn settle(&self, tag: u64, settle: impl FnOnce(&mut VhostState, Unacknowledged)) {
        let mut state = self.state();
        if let Some(delivery) = state.unacknowledged.remove(&tag) {
            settle(&mut state, delivery);
            drop(state);
            self.changed.notify_waiters();
        }
    }

    /// Gives a delivery back to its queue, unless it is settled already.
    pub(super) fn give_back(&self, tag: u64) {
        self.settle(tag, VhostState::give_back);
    }
}

impl VhostState {
    /// The switches are as `topology apply` leaves them: nothing is paused.
    pub(super) fn new(desired: &Desired) -> Self {
        let mut queues = Queues::new(desired);
        queues.put(&names::control(&desired.owner), first_switches());
        Self {
            queues,
            unacknowledged: BTreeMap::new(),
            consumers: BTreeMap::new(),
            #[cfg(feature = "internals")]
            looked_at: BTreeSet::new(),
            next: 0,
            script: None,
        }
    }

    /// A topology with another name has another stream of switches. What is not acknowledged returns to the queue's present name.
    #[cfg(any(test, feature = "internals"))]
    pub(super) fn declare(&mut self, desired: &Desired) {
        self.queues.declare(desired);
        for rename in &desired.renames {
            let held = self.unacknowledged.values_mut().filter(|delivery| delivery.queue == rename.from);
            held.for_each(|delivery| delivery.queue.clone_from(&rename.to));
        }
        let control = names::control(&desired.owner);
        if self.queues.count(&control) == Some(0) {
            self.queues.put(&control, first_switches());
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn give_back(&mut self, Unacknowledged { queue, message, .. }: Unacknowledged) {
        if self.script.as_ref().is_some_and(|script| script.forgets_return()) {
            return;
        }
        self.queues.give_back(&queue, message);
    }

    /// Whether the queue delivers to this consumer. With [`Order::Kept`] only the oldest consumer is active.
    pub(super) fn is_active(&self, consumer: u64, queue: &str, order: Order) -> bool {
        let first = || self.consumers.iter().find(|(_, other)| *other == queue);
        order == Order::Any || first().is_some_and(|(first, _)| *first == consumer)
    }

    pub(super) fn has_room(&self, consumer: u64, prefetch: u16) -> bool {
        let held = self.unacknowledged.values().filter(|delivery| delivery.consumer == Some(consumer)).count();
        prefetch == 0 || held < usize::from(prefetch)
    }

    pub(super) fn require(&self, queue: &str) -> Result<(), BrokerError> {
        if self.queues.has_queue(queue) {
            return Ok(());
        }
        Err(missing_queue(queue))
    }

    /// Returns a message as it is delivered, with the headers that RabbitMQ adds.
    pub(super) fn incoming(&self, queue: &str, message: &queues::Message<Content>) -> Incoming {
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

/// Returns a snapshot in which nothing is paused.
fn first_switches() -> queues::Message<Content> {
    queues::Message::new("", Content { properties: Properties::default(), body: Switches::default().text().into() })
}

pub(super) fn missing_queue(name: &str) -> BrokerError {
    BrokerError::Missing { object: format!("the queue {name}") }
}

pub(super) fn missing_exchange(name: &str) -> BrokerError {
    BrokerError::Missing { object: format!("the exchange {name}") }
}

pub(super) fn timestamp(millis: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(millis).ok()?).ok()
}

/// The delivery tag. A delivery goes back to its queue when its tag is dropped, as if the connection was lost.
struct Tag {
    shared: Arc<Vhost>,
    number: u64,
}

impl Receipt for Tag {
    fn answer(self: Box<Self>, disposition: Disposition) -> Written {
        match disposition {
            Disposition::Acknowledge | Disposition::AcknowledgeAtOnce => {
                self.shared.note("acknowledge");
                self.shared.settle(self.number, |_, _| {});
            }
            Disposition::GiveBack => {
                self.shared.note("give back");
                self.shared.give_back(self.number);
            }
            Disposition::Reject => {
                self.shared.note("reject");
                self.shared.settle(self.number, |state, Unacknowledged { queue, message, .. }| {
                    state.queues.reject(&queue, message);
                });
            }
        }
        Written::default()
    }

    fn taken_back(&self) -> Option<TakenBack> {
        (!self.shared.state().unacknowledged.contains_key(&self.number)).then_some(TakenBack::Lost)
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        self.shared.give_back(self.number);
    }
}

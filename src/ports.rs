//! What the event's way needs from outside: a broker, a register, a clock.
//!
//! `flow` knows these traits alone; `adapters` implement them.

mod error;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

pub use self::error::{BrokerError, RegisterError};
use crate::domain::{
    register::{
        Cancel, Cancelled, Claim, Claimed, DedupSlot, Later, Postponed, Record, Release, Renew, Renewed, Reserve,
        Reserved, Settle, Subject,
        index::{Find, Found, Shown},
        state::SlotState,
    },
    wire::{Incoming, Message},
};

/// Publishing and consuming, with publisher confirms and manual acknowledgements.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Publishes a persistent message and waits for the broker's confirm.
    ///
    /// # Errors
    /// When the broker did not confirm it; it may have arrived all the same where the connection broke.
    async fn publish(&self, message: Message) -> Result<(), BrokerError>;

    /// Begins to consume a queue, holding at most `prefetch` deliveries.
    ///
    /// # Errors
    /// When the broker is away, or has no such queue.
    async fn consume(&self, queue: &str, prefetch: u16, order: Order) -> Result<Box<dyn Deliveries>, BrokerError>;

    /// Takes the next message of a queue by itself, if one is ready. Nothing else is held with it, and whatever breaks
    /// its connection off breaks no consumer off.
    ///
    /// # Errors
    /// When the broker is away, or has no such queue.
    async fn take(&self, queue: &str) -> Result<Option<Delivery>, BrokerError>;

    /// How many messages of a queue are ready for delivery.
    ///
    /// # Errors
    /// When the broker is away, or has no such queue.
    async fn ready(&self, queue: &str) -> Result<u64, BrokerError>;

    /// Makes sure that none of these is known to be missing. What this user may not see, and what is on a node that is down, counts as
    /// being there.
    ///
    /// # Errors
    /// When the broker is away, or one is missing.
    async fn require(&self, exchanges: &[String], queues: &[String]) -> Result<(), BrokerError>;

    /// The broker that the newest connection leads to. Connects if no connection was made yet.
    ///
    /// # Errors
    /// When the broker is away, or refuses the connection.
    async fn identity(&self) -> Result<BrokerIdentity, BrokerError>;
}

/// The broker's account of itself, from the greeting of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerIdentity {
    /// The name of the cluster. An operator may set it (`rabbitmqctl set_cluster_name`), and two brokers may have the same. Until
    /// then each node says a name of its own, `rabbit@host`, the nodes of one cluster included. RabbitMQ always has one; other
    /// brokers may not.
    pub cluster_name: Option<String>,
    /// The version of RabbitMQ, as `3.10.8`. Absent where the broker is another product.
    pub version: Option<String>,
}

/// Whether the order of a queue matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Several are worked on at a time.
    Any,
    /// One comes after the other. The queue has a single active consumer.
    Kept,
}

/// A consumer's deliveries, in order.
#[async_trait]
pub trait Deliveries: Send {
    /// The next delivery; none when the consumer has ended (cancelled by either side, or the connection is gone). Whoever
    /// stops waiting for it loses none.
    async fn next(&mut self) -> Option<Delivery>;

    /// Stops consuming. What was delivered stays with the worker; what was delivered and not yet read still comes.
    async fn cancel(&mut self);

    /// Whether what it delivered stays with the worker also when it has ended by itself.
    fn outlived(&self) -> bool {
        false
    }

    /// Ends the consumer, and gives everything that is not acknowledged back at once, to the head of the queue in its order.
    async fn close(self: Box<Self>);
}

/// A message that waits for its acknowledgement.
pub struct Delivery {
    /// What came.
    pub message: Incoming,
    /// The broker has delivered it before, to this consumer or another one, and had it back.
    pub redelivered: bool,
    /// How to settle it.
    pub receipt: Box<dyn Receipt>,
}

/// Settles one delivery. If the connection it came by is gone the broker has taken the delivery back by itself, and
/// the calls do nothing.
#[async_trait]
pub trait Receipt: Send + Sync {
    /// Acknowledges: the broker forgets the message.
    async fn acknowledge(self: Box<Self>);

    /// Gives it back to the queue.
    async fn requeue(self: Box<Self>);

    /// Has the broker itself put it into dead-letter, as it is.
    async fn reject(self: Box<Self>);
}

/// The register: tells which copies are stale. Every call is about a batch and answers in its order; every call may
/// be lost, repeated or late without harm.
#[async_trait]
pub trait Register: Send + Sync + 'static {
    /// Makes sure that it answers.
    async fn ping(&self) -> Result<(), RegisterError>;
    /// Where it is, without the password, for messages.
    fn url(&self) -> String {
        "-".to_owned()
    }
    /// How often a call has found that what this program knew to be there was gone. Of each time somebody is told once.
    fn times_emptied(&self) -> u64 {
        0
    }
    /// Gives versions before publishing.
    async fn reserve(&self, batch: &[Reserve]) -> Result<Vec<Reserved>, RegisterError>;
    /// Notes what the broker has confirmed.
    async fn record(&self, batch: &[Record]) -> Result<(), RegisterError>;
    /// What is known of the slot of a copy that is not to start: to tell people why. None where nothing is known.
    async fn slot(&self, subject: &Subject, slot: &DedupSlot) -> Result<Option<SlotState>, RegisterError>;
    /// Asks whether a handler may start.
    async fn claim(&self, batch: &[Claim]) -> Result<Vec<Claimed>, RegisterError>;
    /// Extends leases.
    async fn renew(&self, batch: &[Renew]) -> Result<Vec<Renewed>, RegisterError>;
    /// Takes claims back.
    async fn release(&self, batch: &[Release]) -> Result<(), RegisterError>;
    /// Notes how runs ended.
    async fn settle(&self, batch: &[Settle]) -> Result<(), RegisterError>;
    /// Puts events off that wait.
    async fn later(&self, batch: &[Later]) -> Result<Vec<Postponed>, RegisterError>;
    /// Cancels slots. Answers with what was in each of them.
    async fn cancel(&self, batch: &[Cancel]) -> Result<Vec<Vec<Cancelled>>, RegisterError>;
    /// Cancels an event wherever it may be: nobody knows its reference, which says where. Of one place there is no need to
    /// say more than *cancel* does.
    async fn cancel_anywhere(&self, call: &Cancel) -> Result<Vec<Cancelled>, RegisterError> {
        Ok(self.cancel(std::slice::from_ref(call)).await?.into_iter().flatten().collect())
    }
}

/// What the register tells people of the events that wait. Nothing is decided from it.
#[async_trait]
pub trait Index: Send + Sync + 'static {
    /// A page of a type's events, by their due times.
    async fn find(&self, find: &Find) -> Result<Found, RegisterError>;
    /// All that is known of each: of a reference, or of an event where the subject names none.
    async fn look(&self, batch: &[Subject]) -> Result<Vec<Vec<Shown>>, RegisterError>;
    /// All that is known of each of these slots. One whose reference has very many costs no more than any other.
    async fn look_at(&self, batch: &[(Subject, DedupSlot)]) -> Result<Vec<Option<Shown>>, RegisterError>;
    /// The message of the newest event of each slot, where it was kept.
    async fn kept(&self, batch: &[(Subject, DedupSlot)]) -> Result<Vec<Option<Bytes>>, RegisterError>;
}

/// What time it is.
pub trait Clock: Send + Sync + 'static {
    /// The time of day.
    fn now(&self) -> Timestamp;
}

//! The ports: traits for the broker, the register and the clock.
//!
//! `publish`, `work` and `operate` depend on these traits alone, and `adapters` implement them.

mod error;
mod written;

use std::{collections::BTreeMap, fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};

pub(crate) use self::error::in_parts;
pub use self::{
    error::{BrokerError, RegisterError, SettledAndClaimed},
    written::Written,
};
use crate::domain::{
    register::{
        Cancel, Cancelled, Claim, ClaimAnswer, DedupSlot, Later, Postponed, Record, Release, Renew, Renewed, Reserve,
        Reserved, Settle, Subject, Terms,
        ended_runs::{EndedRuns, Unrecorded},
        index::{Find, Found, Shown, TypeCounts},
        state::SlotState,
    },
    time,
    wire::{Incoming, Message},
    words::EventType,
};

/// Publishing and consuming, with publisher confirms and manual acknowledgements.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Sends a persistent message, and returns what waits for the broker's confirm. Messages that are sent one after the other
    /// enter a queue in this order. If either future is dropped, the message may have been sent.
    ///
    /// # Errors
    /// When the broker cannot be reached.
    async fn send(&self, message: Message) -> Result<Confirming, BrokerError>;

    /// Publishes a persistent message and waits for the broker's confirm.
    ///
    /// # Errors
    /// When the broker did not confirm the message. If the connection broke, the message may have arrived all the same.
    async fn publish(&self, message: Message) -> Result<(), BrokerError> {
        self.send(message).await?.await
    }

    /// Sends a record of what has happened to an event, and returns what waits for the broker's confirm. Uses a connection that no
    /// event uses, so that nothing waits for it.
    ///
    /// # Errors
    /// When the broker cannot be reached.
    async fn record(&self, record: Message) -> Result<Confirming, BrokerError>;

    /// Starts to consume a queue with a limit of `prefetch` unacknowledged deliveries. `unavailable` is why the handler is
    /// unavailable. It becomes an argument of the consumer, which the management UI and `topology status` show. `hold` is the
    /// longest time until a delivery is acknowledged. RabbitMQ 4.3 waits so long; others have a timeout of their own.
    ///
    /// # Errors
    /// When the broker is away, or has no such queue.
    async fn consume(
        &self,
        queue: &str,
        prefetch: u16,
        order: Order,
        unavailable: Option<&str>,
        hold: Option<Duration>,
    ) -> Result<Box<dyn Deliveries>, BrokerError>;

    /// Consumes a stream: its last message, and each one that follows. A stream without messages delivers the first one once it is
    /// there. After half a minute without a delivery the last message is delivered again, because a stream whose leader is frozen
    /// is silent too. Uses a connection that no consumer of a queue uses: RabbitMQ closes it if the stream has no majority.
    /// Acknowledge each delivery: a stream removes none, and stops at the prefetch.
    ///
    /// # Errors
    /// When the broker is away, has no such stream, or refuses to read it.
    async fn follow(&self, stream: &str) -> Result<Box<dyn Deliveries>, BrokerError>;

    /// Takes the next message of a queue, if one is ready, on a connection that no consumer uses. So a message that
    /// breaks this connection ends no consumer.
    ///
    /// # Errors
    /// When the broker is away, or has no such queue.
    async fn take(&self, queue: &str) -> Result<Option<Delivery>, BrokerError>;

    /// Waits until the answers written so far can no longer be lost with the connection. Otherwise RabbitMQ may deliver events
    /// again that it was told are done.
    async fn until_sent_on(&self) {}

    /// Begins to look at a queue from its head. Looking removes nothing.
    ///
    /// Only one look at a queue can be open at a time. Otherwise the messages of two looks would return to the queue in
    /// another order than before.
    ///
    /// # Errors
    /// When the broker is away, has no such queue, or another look at the queue is open ([`BrokerError::Locked`]).
    #[cfg(feature = "internals")]
    async fn look(&self, queue: &str) -> Result<Box<dyn Look>, BrokerError>;

    /// Returns how many messages of a queue are ready for delivery, and its consumers.
    ///
    /// # Errors
    /// When the broker is away, or has no such queue.
    async fn ready(&self, queue: &str) -> Result<Ready, BrokerError>;

    /// Fails if any of these objects is missing. Objects hidden by permissions, or on a node that is down, count as
    /// present.
    ///
    /// # Errors
    /// When the broker is away, or an object is missing.
    async fn require(&self, exchanges: &[String], queues: &[String]) -> Result<(), BrokerError>;

    /// Returns the broker that the newest connection leads to. Connects if there was no connection yet.
    ///
    /// # Errors
    /// When the broker is away, or refuses the connection.
    async fn identity(&self) -> Result<BrokerIdentity, BrokerError>;
}

/// What a passive declaration tells of a queue. RabbitMQ answers 0 and 0 for a quorum queue without a leader (measured): 0 messages
/// count only if a consumer that is there is counted too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The messages that are ready for delivery.
    pub messages: u64,
    /// The consumers.
    pub consumers: u64,
}

/// Waits for the broker's confirm of a message. The error is that of [`Broker::publish`].
pub type Confirming = BoxFuture<'static, Result<(), BrokerError>>;

/// The name and version of the broker, from the greeting of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerIdentity {
    /// The name of the cluster. An operator may set it (`rabbitmqctl set_cluster_name`), and two brokers may have the
    /// same name. If it is not set, each node of a cluster answers with its own name, like `rabbit@host`. RabbitMQ
    /// always has a name; other brokers may not.
    pub cluster_name: Option<String>,
    /// The version of RabbitMQ, like `3.10.8`. `None` if the broker is another product.
    pub version: Option<String>,
}

/// Whether a worker keeps the order of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The worker handles several deliveries at a time.
    Any,
    /// The worker handles one delivery after the other. The queue has a single active consumer.
    Kept,
}

/// A consumer's deliveries, in order.
#[async_trait]
pub trait Deliveries: Send {
    /// Waits for the next delivery. Returns `None` when the consumer has ended: either side cancelled it, or the
    /// connection is gone. Dropping the future loses no delivery.
    async fn next(&mut self) -> Option<Delivery>;

    /// Waits for the next delivery, and adds to `batch` that one and those that have arrived with it. Returns whether there
    /// was one: if not, the consumer has ended. Dropping the future loses no delivery.
    async fn next_batch(&mut self, batch: &mut Vec<Delivery>) -> bool {
        let delivery = self.next().await;
        let any = delivery.is_some();
        batch.extend(delivery);
        any
    }

    /// Stops consuming. The worker keeps its deliveries, and [`next`](Self::next) still returns those that it has not
    /// read.
    async fn cancel(&mut self);

    /// Tells whether the worker keeps its deliveries even after the consumer has ended by itself.
    fn outlived(&self) -> bool {
        false
    }

    /// Ends the consumer, and returns all unacknowledged deliveries at once to the head of the queue, in order.
    async fn close(self: Box<Self>);
}

/// An open look at a queue. Messages that are not acknowledged stay in the queue, in their order.
#[cfg(feature = "internals")]
#[async_trait]
pub trait Look: Send {
    /// Returns the number of messages that were ready when the look began. The look ends after that many, so that it
    /// never reads a message that was published meanwhile.
    fn ready(&self) -> u64;

    /// Returns the number of consumers that read the queue when the look began. The look does not see the messages that
    /// they hold.
    fn consumers(&self) -> u32;

    /// Returns at least one and at most `most` of the next messages; none at the end. A message whose receipt is dropped
    /// stays in the queue. The caller holds at most [`LOOK_IN_FLIGHT`] receipts at a time.
    ///
    /// # Errors
    /// When the connection is lost, or a message has ended it ([`BrokerError::Unreadable`]). The broker has returned the messages
    /// by itself. Further calls return what had arrived before.
    async fn next(&mut self, most: usize) -> Result<Vec<Delivery>, BrokerError>;

    /// Ends the look. Returns all messages that were not acknowledged to the queue, in their order.
    ///
    /// # Errors
    /// When the connection is lost. The broker returns the messages by itself.
    async fn close(self: Box<Self>) -> Result<(), BrokerError>;
}

/// The most receipts of a [`Look`] that its caller may hold at a time.
#[cfg(feature = "internals")]
pub const LOOK_IN_FLIGHT: usize = 1_024;

/// A message that waits for its acknowledgement.
pub struct Delivery {
    /// The message.
    pub message: Incoming,
    /// The priority that its publisher has set. No copy keeps it.
    pub priority: Option<u8>,
    /// Whether the broker delivered the message before, to any consumer, and got it back.
    pub redelivered: bool,
    /// Settles the delivery.
    pub receipt: Box<dyn Receipt>,
}

/// How a delivery is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The broker removes the message: its event is settled, or stale. The acknowledgement may wait for those of its neighbours.
    Acknowledge,
    /// The broker removes the message, whose copy is in the broker and may run at once: a crash before the acknowledgement makes two
    /// events of one.
    AcknowledgeAtOnce,
    /// The broker itself dead-letters the message unchanged.
    Reject,
    /// The delivery returns to its queue (`requeue` as RabbitMQ means it).
    GiveBack,
}

/// Answers one delivery. The answer is under way when the function returns; [`Written`] tells when it is written. If the
/// delivery's connection is gone, the broker has returned the delivery to its queue, and the calls do nothing.
pub trait Receipt: Send + Sync {
    /// Answers the delivery.
    fn answer(self: Box<Self>, disposition: Disposition) -> Written;

    /// Acknowledges the delivery, so that the broker removes the message.
    #[must_use]
    fn acknowledge(self: Box<Self>) -> Written {
        self.answer(Disposition::Acknowledge)
    }

    /// Returns why the broker has taken the delivery back, if it has. Then no answer reaches it.
    fn taken_back(&self) -> Option<TakenBack> {
        None
    }
}

/// Why the broker has taken a delivery back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakenBack {
    /// The broker has ended the consumer or the channel, mostly because the delivery was not acknowledged in time. The text is
    /// what it says.
    Ended(String),
    /// The connection is lost.
    Lost,
}

/// A kind of named states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateKind {
    /// By the name of a schedule: the text of a [`ScheduleState`](crate::domain::schedule::state::ScheduleState).
    Schedule,
    /// By the oldest name of a type: the text of a [`BreakerState`](crate::domain::breaker::BreakerState).
    Breaker,
}

/// A compare-and-set of a state.
#[derive(Clone, Copy, Debug)]
pub struct StateChange<'a> {
    /// The name of the state.
    pub name: &'a str,
    /// The state that is replaced. `None` if there is none.
    pub before: Option<&'a str>,
    /// The new state. `None` removes it.
    pub after: Option<&'a str>,
}

/// Whether a state was replaced. If not, nothing was changed, and the error is the state that is there.
pub type Replaced = Result<(), Option<String>>;

/// Texts by kind and name, which all workers share.
#[async_trait]
pub trait NamedStates: Send + Sync + 'static {
    /// Returns each state of a kind by its name.
    async fn states(&self, kind: StateKind) -> Result<BTreeMap<String, String>, RegisterError>;
    /// Returns a state.
    async fn state(&self, kind: StateKind, name: &str) -> Result<Option<String>, RegisterError>;
    /// Replaces states in one call, each by itself.
    async fn replace_states(
        &self,
        kind: StateKind,
        changes: &[StateChange<'_>],
    ) -> Result<Vec<Replaced>, RegisterError>;
    /// Takes the turn to heal the schedules, which others then do not get for this long. Returns whether it was free.
    async fn take_turn(&self, length: Duration) -> Result<bool, RegisterError>;

    /// Replaces one state. Returns `false`, and changes nothing, if the state is not `before`.
    async fn replace_state(
        &self,
        kind: StateKind,
        name: &str,
        before: Option<&str>,
        after: Option<&str>,
    ) -> Result<bool, RegisterError> {
        let replaced = self.replace_states(kind, &[StateChange { name, before, after }]).await?;
        Ok(replaced.first().is_some_and(Result::is_ok))
    }
}

/// What workers and publishers tell `topology status` and the metrics beside the protocol. Nothing is decided from it, so a call that
/// fails is only logged.
#[async_trait]
pub trait Reports: Send + Sync + 'static {
    /// Adds to the counts of the runs that have ended, by type, and of the records that the broker has not taken.
    async fn report_runs(
        &self,
        runs: &BTreeMap<EventType, EndedRuns>,
        unrecorded: &Unrecorded,
    ) -> Result<(), RegisterError>;
    /// Tells `topology status` for this long that this machine's clock is so far ahead of Redis's.
    async fn report_clock(&self, _ahead: SignedDuration, _length: Duration) -> Result<(), RegisterError> {
        Ok(())
    }
    /// Returns for each of these types when its oldest due event was due: now if none waits, `None` if that is not known.
    async fn oldest_due(&self, types: &[EventType], _now: Timestamp) -> Result<Vec<Option<Timestamp>>, RegisterError> {
        Ok(vec![None; types.len()])
    }
}

/// The register, which tells which copies are stale. A call takes a batch and answers in the order of the batch. Each
/// call may be lost, repeated or late without harm.
#[async_trait]
pub trait Register: NamedStates + Reports {
    /// Fails if the register does not answer.
    async fn ping(&self) -> Result<(), RegisterError>;
    /// Returns the register's URL without the password, for messages.
    fn url(&self) -> String;
    /// Begins to look whether the register was emptied since the last look, if that was a while ago, and tells the others if nobody
    /// has yet. [`times_emptied`](Self::times_emptied) counts it. Nobody waits for the look.
    fn look_for_loss(&self) {}
    /// Returns how often a call or [`look_for_loss`](Self::look_for_loss) found that keys which this program had seen were gone,
    /// since this function was last called.
    fn times_emptied(&self) -> u64 {
        0
    }
    /// Reserves versions, before publishing.
    async fn reserve(&self, batch: &[Reserve]) -> Result<Vec<Reserved>, RegisterError>;
    /// Records publishes that the broker has confirmed.
    async fn record(&self, batch: &[Record]) -> Result<(), RegisterError>;
    /// Returns the state of a slot, to tell people why a copy may not start. Returns `None` if the register does not
    /// have it.
    async fn slot(&self, subject: &Subject, slot: &DedupSlot) -> Result<Option<SlotState>, RegisterError>;
    /// Asks whether a handler may start.
    async fn claim(&self, batch: &[Claim]) -> Result<Vec<ClaimAnswer>, RegisterError>;
    /// Extends leases.
    async fn renew(&self, batch: &[Renew]) -> Result<Vec<Renewed>, RegisterError>;
    /// Releases claims.
    async fn release(&self, batch: &[Release]) -> Result<(), RegisterError>;
    /// Records how runs ended.
    async fn settle(&self, batch: &[Settle]) -> Result<(), RegisterError>;
    /// Returns how long a worker waits at most from one call to the next one if that is about few events. A call has costs of its
    /// own, so events that come one by one cost several times as much as many in one call.
    fn pace(&self) -> Duration {
        Duration::ZERO
    }
    /// Settles, and then claims, in as few calls as possible. Answers each of them by itself.
    async fn settle_and_claim(&self, settles: &[Settle], claims: &[Claim]) -> Result<SettledAndClaimed, RegisterError> {
        let settled = in_parts(settles, |part| Box::pin(async move { Ok(vec![self.settle(part).await?; part.len()]) }));
        let settled = settled.await?;
        let claimed = in_parts(claims, |part| self.claim(part)).await?;
        Ok(SettledAndClaimed { settled, claimed })
    }
    /// Postpones waiting events.
    async fn later(&self, batch: &[Later]) -> Result<Vec<Postponed>, RegisterError>;
    /// Cancels slots. Returns the contents of each of them.
    async fn cancel(&self, batch: &[Cancel]) -> Result<Vec<Vec<Cancelled>>, RegisterError>;
    /// Cancels an event whose reference is unknown, in every shard, because the reference chooses the shard. The
    /// default suits a register with one shard.
    async fn cancel_anywhere(&self, call: &Cancel) -> Result<Vec<Cancelled>, RegisterError> {
        Ok(self.cancel(std::slice::from_ref(call)).await?.into_iter().flatten().collect())
    }
}

/// The index, in which people search for waiting events. Nothing is decided from it.
#[async_trait]
pub trait Index: Send + Sync + 'static {
    /// Returns a page of a type's events, ordered by their due times.
    async fn find(&self, find: &Find) -> Result<Found, RegisterError>;
    /// Counts the events of each of these types. The cost does not grow with the number of events.
    async fn count(&self, types: &[EventType]) -> Result<Vec<TypeCounts>, RegisterError>;
    /// Returns the slots of each subject: those of its reference, or those of its event if it has no reference.
    async fn look(&self, batch: &[Subject]) -> Result<Vec<Vec<Shown>>, RegisterError>;
    /// Returns each of these slots, if it is known. The cost does not grow with the number of slots of a reference.
    async fn look_at(&self, batch: &[(Subject, DedupSlot)]) -> Result<Vec<Option<Shown>>, RegisterError>;
    /// Tells of each slot whether a run that a cancel has reached still holds its lease.
    async fn cancelled_runs(&self, batch: &[(Subject, DedupSlot, Terms)]) -> Result<Vec<bool>, RegisterError>;
    /// Returns the message of the newest event of each slot, if the register kept it.
    async fn kept(&self, batch: &[(Subject, DedupSlot)]) -> Result<Vec<Option<Bytes>>, RegisterError>;
}

impl fmt::Debug for dyn Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared().fmt(f)
    }
}

/// A clock.
pub trait Clock: Send + Sync + 'static {
    /// Returns the present time by the clock of this machine.
    fn now(&self) -> Timestamp;

    /// Returns how far the clock of this machine is ahead of Redis's at least, and a negative time if it is behind. Zero until Redis has
    /// answered; `None` if there is no other clock.
    fn ahead(&self) -> Option<SignedDuration> {
        None
    }

    /// Whether [`of_redis`](Self::of_redis) is the time of Redis, where there is one.
    fn is_compared(&self) -> bool {
        true
    }

    /// Returns the present time by the clock that all machines share: this machine's, or Redis's if this machine's is wrong.
    fn shared(&self) -> Timestamp {
        time::shared(self.now(), self.ahead())
    }

    /// Returns the present time by Redis's clock, or by this machine's if Redis has not answered.
    fn of_redis(&self) -> Timestamp {
        time::of_redis(self.now(), self.ahead())
    }

    /// Returns the later one of both times. An event is early if it is early by both clocks: otherwise one wrong clock would put events off
    /// that are due.
    fn latest(&self) -> Timestamp {
        let now = self.now();
        now.max(time::shared(now, self.ahead()))
    }
}

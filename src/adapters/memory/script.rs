//! Faults that a test of this crate injects into the broker and the register in memory, and the diary of their calls.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Semaphore, time::Instant};
use uuid::Uuid;

use crate::{
    domain::{
        register::{Cancel, Claim, ClaimAnswer, End, Release, Renew, Reserve, Settle},
        trouble::Trouble,
        wire::Message,
    },
    ports::{BrokerError, Register, RegisterError},
};

/// The calls to the broker and the register, in order.
#[derive(Clone, Default)]
pub struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    pub(crate) fn note(&self, entry: impl Into<String>) {
        lock(&self.0).push(entry.into());
    }

    /// Returns the calls.
    #[cfg(any(test, feature = "internals"))]
    #[must_use]
    pub fn entries(&self) -> Vec<String> {
        lock(&self.0).clone()
    }

    #[cfg(test)]
    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
    }
}

/// Called for each publish before the message is routed. An error becomes the broker's answer.
pub type OnPublish = Box<dyn FnMut(&Message) -> Result<(), BrokerError> + Send>;

/// Called for each cancel before the register executes it.
pub(crate) type OnCancel = Box<dyn FnMut(&dyn Register, &[Cancel]) + Send>;

/// The faults of a broker and a register, and the diary of their calls. By default there are no faults.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fault by itself")]
pub struct Script {
    /// The calls to the broker and the register.
    pub diary: Diary,

    /// The messages that the broker has taken, in order.
    pub published: Mutex<Vec<Message>>,
    /// Whether the broker's calls are left out of the diary.
    pub(crate) is_broker_silent: bool,
    /// Called for each publish.
    pub on_publish: Mutex<Option<OnPublish>>,
    /// The broker loses this many of the next publishes: they fail without a confirm.
    pub(crate) lose: AtomicUsize,
    /// Whether the broker blocks publishers.
    pub(crate) blocked: AtomicBool,
    /// The broker never answers this many of the next publishes.
    pub(crate) stuck: AtomicUsize,
    /// How long the broker takes to confirm a message that it has taken.
    pub(crate) confirms_after: Mutex<Duration>,
    /// How long the broker takes to answer a `basic.consume`. It delivers before.
    pub(crate) consumes_take: Mutex<Duration>,
    /// How long the broker takes to answer a `basic.get`.
    pub(crate) gets_take: Mutex<Duration>,
    /// Each confirm waits for a permit of this semaphore and keeps it.
    pub(crate) confirms: Option<Semaphore>,
    /// The number of publishes that wait for their confirm.
    pub(crate) unconfirmed: AtomicUsize,
    /// The highest number of publishes that have waited for their confirms at once.
    pub(crate) most_unconfirmed: AtomicUsize,
    /// Whether records of what happens to events are scripted too.
    pub(crate) are_records_scripted: bool,
    /// Whether every message is larger than the broker takes.
    pub(crate) narrow: AtomicBool,
    /// Whether the program has closed its connections.
    pub(crate) closed: AtomicBool,
    /// Whether every `consume` fails.
    pub(crate) absent: AtomicBool,
    /// Whether the broker refuses to read streams, and ends those who read one.
    pub(crate) hides_streams: AtomicBool,
    /// When `consume` was called.
    pub(crate) asked: Mutex<Vec<Instant>>,
    /// Whether a consumer ends after as many deliveries as its prefetch. Its deliveries outlive it.
    pub(crate) careful: AtomicBool,
    /// Whether the queues have no leader: the broker says that nothing is in them, and that they have no consumer.
    pub(crate) leaderless: AtomicBool,
    /// The number of deliveries that were given back.
    pub(crate) came_back: AtomicUsize,
    /// Whether the broker drops a delivery that is given back, so that a test sees the delivery once.
    pub(crate) forgets: AtomicBool,

    /// The register's next answers to claims. Without a scripted answer it follows the protocol.
    pub(crate) claims: Mutex<Vec<ClaimAnswer>>,
    /// How long the register takes to answer a claim.
    pub(crate) claims_take: Mutex<Duration>,
    /// The register grants this many of the next calls that claim, and their answers are lost.
    pub(crate) lost_claims: AtomicUsize,
    /// The register carries out this many of the next changes of states, and their answers are lost.
    pub(crate) lost_states: AtomicUsize,
    /// Whether another worker changes each state before this one can.
    pub(crate) are_states_contested: AtomicBool,
    /// The answer to each change of a state, if it is refused.
    pub(crate) refused_states: Mutex<Option<RegisterError>>,
    /// The tokens of claims: true until the claim is released.
    pub(crate) claimed: Mutex<HashMap<Uuid, bool>>,
    /// The ids of events that may have killed their worker.
    pub(crate) suspects: Vec<String>,
    /// Whether the register is unreachable.
    pub(crate) away: bool,
    /// Whether the register answers every `reserve` with stale.
    pub(crate) stale: bool,
    /// Whether the register answers every `renew` with lost.
    pub(crate) lost: bool,
    /// The ids of events whose leases cannot be renewed, because their keys cannot be read. The error is the answer to the
    /// whole batch.
    pub(crate) unrenewed: Vec<String>,
    /// Whether the register answers no claim. It answers every other call.
    pub(crate) deaf: AtomicBool,
    /// The errors of claims, by the event's id. The error is the answer to the whole batch.
    pub(crate) unclaimed: Mutex<HashMap<String, RegisterError>>,
    /// The register does not answer this many of the next releases.
    pub(crate) unreleased: AtomicUsize,
    /// The errors of settlements, by the event's id. The error is the answer to the whole batch.
    pub(crate) unsettled: Mutex<HashMap<String, RegisterError>>,
    /// The ids of the events that were settled.
    pub(crate) settled: Mutex<Vec<String>>,
    pub(crate) on_cancel: Mutex<Option<OnCancel>>,
}

pub(crate) fn unreachable() -> RegisterError {
    RegisterError::Unreachable { url: "redis".into(), trouble: Trouble::Away, reason: "gone".into() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic")
}

/// Counts `left` down. Whether it was above 0.
fn is_one_of(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

#[cfg(test)]
impl Script {
    /// Returns the message that was published last.
    pub(crate) fn published(&self) -> Message {
        lock(&self.published).last().expect("a message was published").clone()
    }

    pub(crate) fn came_back(&self) -> usize {
        self.came_back.load(Ordering::SeqCst)
    }
}

/// The calls of the broker.
impl Script {
    /// Counts a delivery that is given back. Returns whether the broker drops it.
    pub(super) fn forgets_return(&self) -> bool {
        self.came_back.fetch_add(1, Ordering::SeqCst);
        self.forgets.load(Ordering::SeqCst)
    }

    pub(super) fn note_of_broker(&self, entry: impl Into<String>) {
        if !self.is_broker_silent {
            self.diary.note(entry);
        }
    }

    /// Called before a message is routed.
    pub(super) async fn publish(&self, message: &Message) -> Result<(), BrokerError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(BrokerError::Closed);
        }
        if self.blocked.load(Ordering::SeqCst) {
            self.note_of_broker("blocked");
            return std::future::pending().await;
        }
        if self.narrow.load(Ordering::SeqCst) {
            self.note_of_broker("too large");
            let (exchange, size) = (message.exchange.clone(), message.body.len());
            return Err(BrokerError::TooLarge { exchange, size, reason: "message size".into() });
        }
        if is_one_of(&self.lose) {
            self.note_of_broker("not confirmed");
            return Err(BrokerError::Unreachable { url: "amqp".into(), reason: "cut".into() });
        }
        if is_one_of(&self.stuck) {
            self.note_of_broker("stuck");
            std::future::pending::<()>().await;
        }
        if let Some(on_publish) = &mut *lock(&self.on_publish) {
            on_publish(message)?;
        }
        self.note_of_broker(format!("publish {} {}", message.exchange, message.routing_key));
        lock(&self.published).push(message.clone());
        Ok(())
    }

    /// Called between the routing of a message and its confirm.
    pub(super) async fn confirm(&self) {
        let unconfirmed = self.unconfirmed.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_unconfirmed.fetch_max(unconfirmed, Ordering::SeqCst);
        let confirms_after = *lock(&self.confirms_after);
        if !confirms_after.is_zero() {
            tokio::time::sleep(confirms_after).await;
        }
        if let Some(confirms) = &self.confirms {
            confirms.acquire().await.expect("it is open").forget();
        }
        self.unconfirmed.fetch_sub(1, Ordering::SeqCst);
    }

    /// Waits until the answer to a `basic.consume` comes. Who stops waiting gives back what was delivered meanwhile.
    pub(super) async fn consume_answers(&self) {
        let takes = *lock(&self.consumes_take);
        if !takes.is_zero() {
            self.came_back.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(takes).await;
            self.came_back.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits until the answer to a `basic.get` comes.
    pub(super) async fn take_answers(&self) {
        let takes = *lock(&self.gets_take);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
    }

    pub(super) fn follow(&self, stream: &str) -> Result<(), BrokerError> {
        if self.hides_streams.load(Ordering::SeqCst) {
            let (what, reason) = (format!("the queue {stream}"), "PRECONDITION_FAILED".to_owned());
            return Err(BrokerError::Rejected { what, reason });
        }
        Ok(())
    }
    pub(super) fn consume(&self) -> Result<(), BrokerError> {
        lock(&self.asked).push(Instant::now());
        if self.absent.load(Ordering::SeqCst) {
            return Err(BrokerError::Unreachable { url: "amqp".into(), reason: "cut".into() });
        }
        Ok(())
    }
}

/// The calls of the register.
impl Script {
    pub(super) fn answer(&self, call: impl Into<String>) -> Result<(), RegisterError> {
        if self.away {
            return Err(unreachable());
        }
        self.diary.note(call);
        Ok(())
    }

    pub(super) fn reserve(&self, batch: &[Reserve]) -> Result<(), RegisterError> {
        let slots: Vec<String> = batch.iter().map(|ask| ask.slot.to_string()).collect();
        self.answer(format!("reserve {}", slots.join(" ")))
    }

    /// Returns the scripted answers, in the order of the batch; `None` where the register follows the protocol.
    pub(super) fn claim(&self, batch: &[Claim]) -> Result<Vec<Option<ClaimAnswer>>, RegisterError> {
        if self.deaf.load(Ordering::SeqCst) {
            return Err(unreachable());
        }
        let unclaimed = lock(&self.unclaimed);
        if let Some(error) = batch.iter().find_map(|ask| unclaimed.get(&ask.subject.id)) {
            self.diary.note(format!("{} not claimed", batch.len()));
            return Err(error.clone());
        }
        let mut claims = lock(&self.claims);
        let answer = |ask: &Claim| match claims.is_empty() {
            true if !ask.alone && self.suspects.contains(&ask.subject.id) => Some(ClaimAnswer::Alone),
            true => None,
            false => Some(claims.remove(0)),
        };
        let answers = batch.iter().map(answer).collect();
        for ask in batch {
            // A release of this token that comes late would undo this claim. The diary notes it: a panic here would end
            // the task that claims, and the test would wait for ever.
            if lock(&self.claimed).insert(ask.token, true) == Some(false) {
                self.diary.note("claimed by a token that was released");
            }
        }
        self.answer(if batch[0].alone { "claim alone" } else { "claim" })?;
        Ok(answers)
    }

    /// Waits until the answer to a claim comes. The error is an answer that is lost.
    pub(super) async fn claim_answers(&self) -> Result<(), RegisterError> {
        let takes = *lock(&self.claims_take);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        if is_one_of(&self.lost_claims) { Err(unreachable()) } else { Ok(()) }
    }

    /// Called before states are changed. Returns whether another worker has changed them meanwhile.
    pub(super) fn states(&self, call: String) -> Result<bool, RegisterError> {
        self.answer(call)?;
        match &*lock(&self.refused_states) {
            Some(error) => Err(error.clone()),
            None => Ok(self.are_states_contested.load(Ordering::SeqCst)),
        }
    }

    /// Whether the answer to a change of states is lost.
    pub(super) fn loses_states(&self) -> bool {
        is_one_of(&self.lost_states)
    }

    pub(super) fn release(&self, batch: &[Release]) -> Result<(), RegisterError> {
        if is_one_of(&self.unreleased) {
            return Err(unreachable());
        }
        let claimed = lock(&self.claimed).insert(batch[0].token, false);
        self.answer(if claimed == Some(true) { "release" } else { "release nothing" })
    }

    pub(super) fn settle(&self, batch: &[Settle]) -> Result<(), RegisterError> {
        let unsettled = lock(&self.unsettled);
        if let Some(error) = batch.iter().find_map(|tell| unsettled.get(&tell.subject.id)) {
            self.diary.note(format!("{} not settled", batch.len()));
            return Err(error.clone());
        }
        lock(&self.settled).extend(batch.iter().map(|tell| tell.subject.id.clone()));
        self.answer(if batch[0].end == End::Finished { "settle finished" } else { "settle copied" })
    }

    pub(super) fn renew(&self, batch: &[Renew]) -> Result<(), RegisterError> {
        if batch.iter().any(|renew| self.unrenewed.contains(&renew.subject.id)) {
            return Err(RegisterError::Unreadable { url: "redis".into(), reason: "WRONGTYPE".into() });
        }
        self.answer("renew")
    }

    pub(super) fn cancel(&self, register: &dyn Register, batch: &[Cancel]) -> Result<(), RegisterError> {
        self.answer("cancel")?;
        // Taken out while it runs, because it may cancel as well.
        let taken = lock(&self.on_cancel).take();
        if let Some(mut on_cancel) = taken {
            on_cancel(register, batch);
            *lock(&self.on_cancel) = Some(on_cancel);
        }
        Ok(())
    }
}

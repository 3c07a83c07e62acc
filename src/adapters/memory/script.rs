//! What a test of this crate has the broker and the register in memory do: the faults, and the diary of their calls.

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
        register::{Cancel, Claim, Claimed, End, Release, Reserve, Settle},
        trouble::Trouble,
        wire::Message,
    },
    ports::{BrokerError, Register, RegisterError},
};

/// The calls, in order.
#[derive(Clone, Default)]
pub(crate) struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    pub(crate) fn note(&self, entry: impl Into<String>) {
        lock(&self.0).push(entry.into());
    }

    pub(crate) fn entries(&self) -> Vec<String> {
        lock(&self.0).clone()
    }
}

/// Called for each publish before the message is routed. An error is the broker's answer.
pub(crate) type OnPublish = Box<dyn FnMut(&Message) -> Result<(), BrokerError> + Send>;

/// Called for each cancel before the register carries it out.
pub(crate) type OnCancel = Box<dyn FnMut(&dyn Register, &[Cancel]) + Send>;

/// The faults of a broker and a register, and their diary. By default there are no faults.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fault by itself")]
pub(crate) struct Script {
    pub(crate) diary: Diary,

    /// The messages that the broker has taken, in order.
    pub(crate) published: Mutex<Vec<Message>>,
    /// The broker's calls are not in the diary.
    pub(crate) is_broker_silent: bool,
    pub(crate) on_publish: Mutex<Option<OnPublish>>,
    /// The number of publishes that the broker does not confirm at first.
    pub(crate) lose: AtomicUsize,
    /// The broker blocks publishers.
    pub(crate) blocked: AtomicBool,
    /// The number of publishes that the broker does not answer at first.
    pub(crate) stuck: AtomicUsize,
    /// How long the broker takes to confirm a message that it has taken.
    pub(crate) confirms_after: Mutex<Duration>,
    /// Each confirm takes a permit.
    pub(crate) confirms: Option<Semaphore>,
    /// The publishes that wait for their confirm, and the largest number of them.
    pub(crate) unconfirmed: AtomicUsize,
    pub(crate) most_unconfirmed: AtomicUsize,
    /// Each message is larger than the broker takes.
    pub(crate) narrow: AtomicBool,
    /// The program has closed its connections.
    pub(crate) closed: AtomicBool,
    /// Nothing can be consumed.
    pub(crate) absent: AtomicBool,
    /// When a consumer was asked for.
    pub(crate) asked: Mutex<Vec<Instant>>,
    /// A consumer ends after as many deliveries as it may hold, and they stay with it.
    pub(crate) careful: AtomicBool,
    /// The number of deliveries that came back.
    pub(crate) came_back: AtomicUsize,
    /// A delivery that comes back is gone, so that it is seen once.
    pub(crate) forgets: AtomicBool,

    /// The register's next answers to claims. Without one it answers by its rules.
    pub(crate) claims: Mutex<Vec<Claimed>>,
    /// The tokens of claims, and whether they were not released.
    pub(crate) claimed: Mutex<HashMap<Uuid, bool>>,
    /// Events that may have killed their worker, by id.
    pub(crate) suspects: Vec<String>,
    /// The register answers nothing.
    pub(crate) away: bool,
    /// Each event that asks for a version is stale.
    pub(crate) stale: bool,
    /// A lease that is renewed is lost.
    pub(crate) lost: bool,
    /// The register answers no claim, and every other call.
    pub(crate) deaf: AtomicBool,
    /// Events that cannot be claimed, by id, and neither can those of the same call.
    pub(crate) unclaimed: Mutex<HashMap<String, RegisterError>>,
    /// The number of releases that the register does not answer at first.
    pub(crate) unreleased: AtomicUsize,
    /// Events that cannot be settled, by id, and neither can those of the same call.
    pub(crate) unsettled: Mutex<HashMap<String, RegisterError>>,
    /// The events that were settled, by id.
    pub(crate) settled: Mutex<Vec<String>>,
    pub(crate) on_cancel: Mutex<Option<OnCancel>>,
}

pub(crate) fn unreachable() -> RegisterError {
    RegisterError::Unreachable { url: "redis".into(), trouble: Trouble::Away, reason: "gone".into() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic")
}

/// Whether this is one of the first so many calls.
fn is_one_of(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// The broker's side.
impl Script {
    /// The message that was published last.
    pub(crate) fn published(&self) -> Message {
        lock(&self.published).last().expect("a message was published").clone()
    }

    pub(crate) fn came_back(&self) -> usize {
        self.came_back.load(Ordering::SeqCst)
    }

    /// Counts a delivery that comes back. Says whether it is gone then.
    pub(super) fn forgets_return(&self) -> bool {
        self.came_back.fetch_add(1, Ordering::SeqCst);
        self.forgets.load(Ordering::SeqCst)
    }

    pub(super) fn note_of_broker(&self, entry: impl Into<String>) {
        if !self.is_broker_silent {
            self.diary.note(entry);
        }
    }

    /// Before a message is routed.
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

    /// Between the routing of a message and its confirm.
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

    pub(super) fn consume(&self) -> Result<(), BrokerError> {
        lock(&self.asked).push(Instant::now());
        if self.absent.load(Ordering::SeqCst) {
            return Err(BrokerError::Unreachable { url: "amqp".into(), reason: "cut".into() });
        }
        Ok(())
    }
}

/// The register's side.
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

    /// The answers that are not by the rules.
    pub(super) fn claim(&self, batch: &[Claim]) -> Result<Vec<Option<Claimed>>, RegisterError> {
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
            true if !ask.alone && self.suspects.contains(&ask.subject.id) => Some(Claimed::Alone),
            true => None,
            false => Some(claims.remove(0)),
        };
        let answers = batch.iter().map(answer).collect();
        for ask in batch {
            // A release that comes late would take this claim away. It is noted, because a panic here would end the task that asks,
            // and leave the test waiting.
            if lock(&self.claimed).insert(ask.token, true) == Some(false) {
                self.diary.note("claimed by a token that was released");
            }
        }
        self.answer(if batch[0].alone { "claim alone" } else { "claim" })?;
        Ok(answers)
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

    pub(super) fn cancel(&self, register: &dyn Register, batch: &[Cancel]) -> Result<(), RegisterError> {
        self.answer("cancel")?;
        // Taken out: it may cancel, too.
        let taken = lock(&self.on_cancel).take();
        if let Some(mut on_cancel) = taken {
            on_cancel(register, batch);
            *lock(&self.on_cancel) = Some(on_cancel);
        }
        Ok(())
    }
}

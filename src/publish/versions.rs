//! A publisher's calls to the register. They are best-effort: after a timeout the event has no version, and Redis rests for a
//! second.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::batch::Batched;
use crate::{
    domain::{
        event::Event,
        register::{Record, Reserve, Reserved},
        trouble::Trouble,
        words::{Reference, plain},
    },
    outage::{RegisterHealth, Side},
    ports::{Register, RegisterError},
};

/// How long a publisher waits for a version, unless it is told otherwise. Without one the event competes with nothing.
pub(crate) const VERSION_WAIT: Duration = Duration::from_millis(250);

/// How long a publisher does not ask the register again after a call without an answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Between two lines about what cannot be read.
const SAY_UNREAD: Duration = Duration::from_mins(1);

pub(super) type Answer = Result<Reserved, RegisterError>;

/// A question, and since when it stands.
pub(super) struct PendingVersion<F> {
    at: Instant,
    answer: F,
}

pub(super) struct Versions {
    reserve: Batched<Reserve, Reserved>,
    record: Batched<Record, ()>,
    pub(super) contact: Arc<Contact>,
    /// How long an answer is waited for.
    limit: Duration,
    /// Events whose keys in the register could not be read.
    unread: Mutex<Unread>,
}

#[derive(Default)]
struct Unread {
    events: u64,
    said: Option<Instant>,
}

/// Whether the register answers.
pub(super) struct Contact {
    register: Arc<dyn Register>,
    /// Until then the register is not asked.
    away: Mutex<Option<Instant>>,
    pub(super) health: RegisterHealth,
}

impl Versions {
    pub(super) fn new(register: &Arc<dyn Register>, limit: Duration) -> Self {
        let (register, away) = (Arc::clone(register), Mutex::default());
        let contact = Arc::new(Contact { register, away, health: RegisterHealth::new(Side::Publisher) });
        let (reserving, recording) = (Arc::clone(&contact), Arc::clone(&contact));
        Self {
            reserve: Batched::start(move |batch: &[Reserve]| {
                let contact = Arc::clone(&reserving);
                Box::pin(async move { contact.noted(contact.register.reserve(batch)).await })
            }),
            record: Batched::start(move |batch: &[Record]| {
                let contact = Arc::clone(&recording);
                Box::pin(async move {
                    let recorded = contact.noted(contact.register.record(batch)).await;
                    recorded.map(|()| vec![(); batch.len()])
                })
            }),
            contact,
            limit,
            unread: Mutex::default(),
        }
    }

    /// Asks for a version, unless the register did not answer a moment ago. The call takes its place in the order from here
    /// on, not from the first poll.
    pub(super) fn ask(&self, reserve: Reserve) -> Option<PendingVersion<impl Future<Output = Answer> + Send + use<>>> {
        if self.contact.is_away() {
            return None;
        }
        let answer = self.reserve.ask(reserve);
        Some(PendingVersion { at: Instant::now(), answer })
    }

    pub(super) async fn wait(&self, event: &Event, asked: PendingVersion<impl Future<Output = Answer>>) -> Option<i64> {
        let PendingVersion { at: asked, answer } = asked;
        // From the question on: of many publishes in a row, each would wait for the whole limit after the one before.
        match tokio::time::timeout_at(asked + self.limit, answer).await {
            Ok(Ok(Reserved::Version(version))) => return Some(version),
            // The key of this reference cannot be read. Other events are answered.
            Ok(Err(error @ RegisterError::Unreadable { .. })) => self.log_unread(event, &error),
            // No event asked, so none is stale.
            Ok(Ok(Reserved::Stale) | Err(_)) => {}
            Err(_) => self.contact.is_slow(asked, self.limit),
        }
        None
    }

    /// Records an event that the broker has confirmed. If that fails, older events of the reference may run too, until the
    /// next claim of the reference.
    pub(super) async fn record(&self, record: Record) {
        let (subject, asked) = (record.subject.clone(), Instant::now());
        let recorded = tokio::time::timeout(self.limit, self.record.ask(record)).await;
        let reason = match recorded {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => {
                self.contact.is_slow(asked, self.limit);
                "no answer in time".to_owned()
            }
        };
        tracing::debug!(reason, id = %plain(&subject.id), event_type = %subject.event_type, "not recorded");
    }

    /// Once a minute while it lasts: each publish meets it.
    fn log_unread(&self, event: &Event, error: &RegisterError) {
        let so_far = {
            let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
            unread.events += 1;
            if unread.said.is_some_and(|said| said.elapsed() < SAY_UNREAD) {
                return;
            }
            unread.said = Some(Instant::now());
            unread.events
        };
        let (id, event_type, reference) =
            (&event.id, &event.event_type, event.reference.as_ref().map(Reference::as_str));
        tracing::error!(
            %error, id, %event_type, reference, so_far,
            "published without a version; so are others of its reference until that key is deleted or mended"
        );
    }
}

impl Contact {
    /// Whether the register did not answer a moment ago.
    pub(super) fn is_away(&self) -> bool {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        away.is_some_and(|until| Instant::now() < until)
    }

    /// Waits for the answer to a call, and notes whether the register is there. Any call may be the first to find it emptied.
    async fn noted<T>(&self, call: impl Future<Output = Result<T, RegisterError>> + Send) -> Result<T, RegisterError> {
        let asked = Instant::now();
        let answer = call.await;
        if answer.is_ok() {
            self.register.look_for_loss();
        }
        Side::Publisher.count_emptied(self.register.times_emptied());
        match &answer {
            // A key that cannot be read is about its reference alone.
            Ok(_) | Err(RegisterError::Unreadable { .. }) => self.health.answered(asked),
            Err(error) => self.failed(asked, error),
        }
        answer
    }

    /// Notes that a call that was made at `asked` had no answer within this time.
    fn is_slow(&self, asked: Instant, limit: Duration) {
        self.failed(asked, &self.late(limit));
    }

    fn late(&self, limit: Duration) -> RegisterError {
        let reason = format!("no answer within {limit:?}");
        RegisterError::Unreachable { url: self.register.url(), trouble: Trouble::Slow, reason }
    }

    fn failed(&self, asked: Instant, error: &RegisterError) {
        if self.health.failed(asked, error) {
            *self.away.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + ASK_AGAIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{clock::SystemClock, memory::MemoryRegister};

    #[test]
    fn a_register_that_does_not_answer_in_time_is_named() {
        let (register, away) = (MemoryRegister::new(Arc::new(SystemClock), Duration::ZERO), Mutex::default());
        let contact = Contact { register: Arc::new(register), away, health: RegisterHealth::new(Side::Publisher) };
        let error = contact.late(Duration::from_millis(250));
        assert_eq!(error.to_string(), "Redis at memory is slow: no answer within 250ms");
    }
}

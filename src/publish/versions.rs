//! A publisher's calls to the register. They are best-effort: after a timeout the event has no version, and Redis rests for a
//! second.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{batch::Batched, contact::Contact};
use crate::{
    domain::{
        event::Event,
        register::{Record, Reserve, Reserved},
        words::{Reference, plain},
    },
    outage::Side,
    ports::{Register, RegisterError},
};

/// How long a publisher waits for a version, unless it is told otherwise. Without one the event competes with nothing.
pub(crate) const VERSION_WAIT: Duration = Duration::from_millis(250);

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
    contact: Arc<Contact>,
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

impl Versions {
    pub(super) fn new(register: &Arc<dyn Register>, limit: Duration) -> Self {
        let contact = Arc::new(Contact::new(register.url()));
        let reserving = (Arc::clone(register), Arc::clone(&contact));
        let recording = reserving.clone();
        Self {
            reserve: Batched::start(move |batch: &[Reserve]| {
                let (register, contact) = reserving.clone();
                Box::pin(async move { noted(&*register, &contact, register.reserve(batch)).await })
            }),
            record: Batched::start(move |batch: &[Record]| {
                let (register, contact) = recording.clone();
                Box::pin(async move {
                    let recorded = noted(&*register, &contact, register.record(batch)).await;
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
        if self.is_away() {
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

    /// Notes that an event was published without a version that it should have.
    pub(super) fn went_without(&self) {
        self.contact.health.unversioned();
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

    /// Whether the register did not answer a moment ago.
    pub(super) fn is_away(&self) -> bool {
        self.contact.is_away()
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

/// Waits for the answer to a call, and notes whether the register is there. Any call may be the first to find it emptied.
async fn noted<T>(
    register: &dyn Register,
    contact: &Contact,
    call: impl Future<Output = Result<T, RegisterError>> + Send,
) -> Result<T, RegisterError> {
    let asked = Instant::now();
    let answer = call.await;
    Side::Publisher.count_emptied(register.times_emptied());
    contact.ended(asked, answer.as_ref().err());
    answer
}

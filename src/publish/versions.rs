//! What a publisher asks the register. It does not need the answers: one that does not come in time costs the event its
//! version, and for a second nothing is asked.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::register::Batches;
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

/// How long it does not ask again after that.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Between two lines about what cannot be read.
const SAY_UNREAD: Duration = Duration::from_mins(1);

pub(super) type Answer = Result<Reserved, RegisterError>;

/// A question, and since when it stands.
pub(super) struct Asked<F> {
    at: Instant,
    answer: F,
}

pub(super) struct Versions {
    register: Batches,
    /// Where the register is, without the password.
    url: String,
    /// How long an answer is waited for.
    limit: Duration,
    /// Until then the register is not asked.
    away: Mutex<Option<Instant>>,
    outage: RegisterHealth,
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
        Self {
            register: Batches::new(register),
            url: register.url(),
            limit,
            away: Mutex::new(None),
            outage: RegisterHealth::new(Side::Publisher),
            unread: Mutex::default(),
        }
    }

    /// Asks for a version, unless the register did not answer a moment ago.
    pub(super) fn ask(&self, reserve: Reserve) -> Option<Asked<impl Future<Output = Answer> + Send + use<>>> {
        if self.is_away() {
            return None;
        }
        let answer = self.register.reserve(reserve);
        Some(Asked { at: Instant::now(), answer })
    }

    pub(super) async fn wait(&self, event: &Event, asked: Asked<impl Future<Output = Answer>>) -> Option<i64> {
        let Asked { at: asked, answer } = asked;
        match tokio::time::timeout(self.limit, answer).await {
            Ok(Ok(Reserved::Version(version))) => {
                self.outage.answered(asked);
                return Some(version);
            }
            // Nobody asked, so nobody is stale.
            Ok(Ok(Reserved::Stale)) => {}
            // What is there is about its reference alone, and others are answered.
            Ok(Err(error @ RegisterError::Unreadable { .. })) => {
                self.outage.answered(asked);
                self.log_unread(event, &error);
            }
            Ok(Err(error)) => self.went_away(asked, &error),
            Err(_) => self.went_away(asked, &self.late()),
        }
        None
    }

    /// An event was published without the version that it was to have.
    pub(super) fn went_without(&self) {
        self.outage.unversioned();
    }

    /// What it says is true already, and of what competes the next claim says it again: nothing waits for it to work. Until
    /// then older events of the reference may run too.
    pub(super) async fn record(&self, record: Record) {
        let (subject, asked) = (record.subject.clone(), Instant::now());
        let error = match tokio::time::timeout(self.limit, self.register.record(record)).await {
            Ok(Ok(())) => return self.outage.answered(asked),
            Ok(Err(error)) => error,
            Err(_) => self.late(),
        };
        tracing::debug!(%error, id = %plain(&subject.id), event_type = %subject.event_type, "not recorded");
        match error {
            RegisterError::Unreadable { .. } => self.outage.answered(asked),
            error => self.went_away(asked, &error),
        }
    }

    /// The register did not answer a moment ago.
    pub(super) fn is_away(&self) -> bool {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        away.is_some_and(|until| Instant::now() < until)
    }

    /// A question that was asked then had no answer: the register is not asked for a second.
    fn went_away(&self, asked: Instant, error: &RegisterError) {
        if self.outage.failed(asked, error) {
            *self.away.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + ASK_AGAIN);
        }
    }

    /// Nobody has said anything for as long as a publisher waits.
    fn late(&self) -> RegisterError {
        let reason = format!("no answer within {:?}", self.limit);
        RegisterError::Unreachable { url: self.url.clone(), trouble: Trouble::Slow, reason }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{clock::SystemClock, memory::MemoryRegister};

    #[tokio::test]
    async fn a_register_that_does_not_answer_in_time_is_named() {
        let memory = MemoryRegister::new(Arc::new(SystemClock), Duration::from_hours(1));
        let register: Arc<dyn Register> = Arc::new(memory);
        let error = Versions::new(&register, Duration::from_millis(250)).late();
        assert_eq!(error.to_string(), "Redis at memory is slow: no answer within 250ms");
    }
}

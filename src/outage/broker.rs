//! A broker that confirms nothing, and one that cannot be consumed from: each is logged once when it begins and once when it
//! ends, because thousands of events may wait for the confirms, and a worker may have many types. What only a person can mend
//! is logged each minute.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::time::Instant;

use super::reminder::{REFUSED, Reminder};
use crate::{domain::ttl::roughly, ports::BrokerError};

/// Whether publishes wait for the broker.
#[derive(Debug, Default)]
pub(crate) struct BrokerOutage {
    is_on: AtomicBool,
    reminder: Mutex<Reminder>,
}

impl BrokerOutage {
    /// Notes that a publish was not confirmed, and is tried again. What needs a person is said each minute.
    pub(crate) fn begins(&self, error: &BrokerError) {
        let begins = !self.is_on.swap(true, Ordering::Relaxed);
        let mut reminder = self.reminder.lock().unwrap_or_else(PoisonError::into_inner);
        if error.is_transient() {
            if begins {
                tracing::warn!(%error, "the broker confirms nothing: publishing waits, and is tried again");
            }
        } else if reminder.is_due() {
            tracing::warn!(%error, "the broker takes no event: publishing waits for a person, and is tried again");
        }
    }

    /// Notes that a publish was confirmed.
    pub(crate) fn ends(&self) {
        if self.is_on.load(Ordering::Relaxed) && self.is_on.swap(false, Ordering::Relaxed) {
            *self.reminder.lock().unwrap_or_else(PoisonError::into_inner) = Reminder::default();
            tracing::warn!("the broker confirms again");
        }
    }
}

/// The queues of a worker that wait for a broker which is away.
#[derive(Debug, Default)]
pub(crate) struct ConsumerOutage(Mutex<Option<Away>>);

#[derive(Debug)]
struct Away {
    since: Instant,
    queues: BTreeSet<String>,
    /// When it was last said that the broker refuses this program.
    refused: Reminder,
}

impl ConsumerOutage {
    /// Notes that a queue cannot be consumed, and is tried again. Returns whether the broker is away, rather than this queue.
    pub(crate) fn waits(&self, queue: &str, error: &BrokerError) -> bool {
        if !matches!(error, BrokerError::Unreachable { .. } | BrokerError::Refused { .. }) {
            self.forget(queue);
            return false;
        }
        let mut away = self.away();
        let is_new = away.is_none();
        let away = away.get_or_insert_with(|| {
            let (since, queues, refused) = (Instant::now(), BTreeSet::new(), Reminder::default());
            Away { since, queues, refused }
        });
        // A lost connection is a warning already. A refusal needs a person.
        if matches!(error, BrokerError::Refused { .. }) {
            if away.refused.is_due() {
                tracing::warn!(%error, "the worker consumes nothing, and tries again: {REFUSED}");
            }
        } else if is_new {
            tracing::info!(%error, "the broker is away; the worker consumes again when it is back");
        }
        away.queues.insert(queue.to_owned());
        true
    }

    /// Notes that a queue is consumed. The outage is over with the last one that has waited.
    pub(crate) fn consumed(&self, queue: &str) {
        if let Some(since) = self.forget(queue) {
            tracing::warn!("the broker is back; it was away for {}", roughly(since.elapsed()));
        }
    }

    /// Notes that a queue waits no longer. Returns since when the broker was away if it was the last one.
    pub(crate) fn forget(&self, queue: &str) -> Option<Instant> {
        let mut away = self.away();
        let was_waiting = away.as_mut()?.queues.remove(queue);
        away.take_if(|away| was_waiting && away.queues.is_empty()).map(|away| away.since)
    }

    fn away(&self) -> MutexGuard<'_, Option<Away>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn gone() -> BrokerError {
        BrokerError::Unreachable { url: "amqp://host".to_owned(), reason: "refused".to_owned() }
    }

    #[test]
    fn an_outage_of_the_broker_is_over_when_the_last_queue_that_has_waited_is_consumed() {
        let outage = ConsumerOutage::default();
        assert!(outage.waits("mail", &gone()) && outage.waits("import", &gone()) && outage.waits("mail", &gone()));
        assert_eq!((outage.forget("mail"), outage.forget("mail"), outage.forget("another")), (None, None, None));
        assert!(outage.forget("import").is_some());
        assert_eq!(outage.forget("import"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_due_to_be_said_at_once_and_each_minute() {
        let (outage, url) = (ConsumerOutage::default(), "amqp://host".to_owned());
        let refused = BrokerError::Refused { url, reason: "ACCESS_REFUSED".to_owned() };
        let is_due = || outage.away().as_mut().is_some_and(|away| away.refused.is_due());
        assert!(outage.waits("mail", &gone()) && is_due(), "the first refusal is said, also after a lost connection");
        for _ in 0..59 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(outage.waits("mail", &refused) && !is_due());
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(is_due());
    }

    #[test]
    fn a_queue_that_is_missing_is_no_outage_of_the_broker() {
        let outage = ConsumerOutage::default();
        assert!(!outage.waits("mail", &BrokerError::Missing { object: "the queue mail".to_owned() }));
        assert!(outage.waits("mail", &gone()));
        assert!(!outage.waits("mail", &BrokerError::Missing { object: "the queue mail".to_owned() }));
        assert_eq!(outage.forget("mail"), None);
    }
}

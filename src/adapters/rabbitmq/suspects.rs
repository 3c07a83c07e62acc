//! Queues that may hold a message which lapin cannot read. See `unreadable.rs`.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lapin::ErrorKind;

/// Queues whose consumer failed because of an unreadable message. The message may be in another queue: it fails every
/// consumer of its connection.
#[derive(Clone, Default)]
pub(super) struct Suspects(Arc<Mutex<BTreeSet<String>>>);

impl Suspects {
    /// Notes a queue whose consumer failed with this error, if an unreadable message is the cause.
    pub(super) fn note(&self, queue: &str, error: &lapin::Error) {
        if is_unreadable(error) {
            self.add(queue);
        }
    }

    pub(super) fn add(&self, queue: &str) {
        self.queues().insert(queue.to_owned());
    }

    pub(super) fn contains(&self, queue: &str) -> bool {
        self.queues().contains(queue)
    }

    pub(super) fn clear(&self, queue: &str) {
        self.queues().remove(queue);
    }

    fn queues(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn is_unreadable(error: &lapin::Error) -> bool {
    matches!(error.kind(), ErrorKind::ParsingError(_))
}

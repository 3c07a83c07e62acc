//! Queues that hold a message which lapin cannot read, see `unreadable.rs`.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lapin::ErrorKind;

/// Queues whose consumer broke off because of an unreadable message, in that queue or in another one of the same connection.
#[derive(Clone, Default)]
pub(super) struct Suspects(Arc<Mutex<BTreeSet<String>>>);

impl Suspects {
    /// Notes the queue whose consumer broke off with this error, if that was the cause.
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

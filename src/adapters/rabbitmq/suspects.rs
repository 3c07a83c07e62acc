//! Queues that may hold a message which ends each connection that it is delivered to. See `unreadable.rs`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lapin::{
    ErrorKind,
    protocol::{AMQPErrorKind, AMQPHardError},
};

/// Queues whose consumer failed because of an unreadable message, and why that is unreadable. The message may be in another
/// queue: it fails every consumer of its connection.
#[derive(Clone, Default)]
pub(super) struct Suspects(Arc<Mutex<BTreeMap<String, &'static str>>>);

impl Suspects {
    /// Notes a queue whose consumer failed with this error, if an unreadable message is the cause.
    pub(super) fn note(&self, queue: &str, error: &lapin::Error) {
        if let Some(why) = unreadable(error) {
            self.add(queue, why);
        }
    }

    pub(super) fn add(&self, queue: &str, why: &'static str) {
        self.queues().insert(queue.to_owned(), why);
    }

    /// Notes that a message of this queue is unreadable: it has ended a connection that consumed no other queue. Acquits the other
    /// queues. If one of them has such a message too, it becomes a suspect again.
    pub(super) fn convict(&self, queue: &str, why: &'static str) {
        let mut queues = self.queues();
        queues.clear();
        queues.insert(queue.to_owned(), why);
    }

    /// Returns why a message of the queue may be unreadable; `None` if the queue is no suspect.
    pub(super) fn why(&self, queue: &str) -> Option<&'static str> {
        self.queues().get(queue).copied()
    }

    pub(super) fn clear(&self, queue: &str) {
        self.queues().remove(queue);
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<String, &'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns why a message has ended its connection with this error. `None` if no message is the cause.
pub(super) fn unreadable(error: &lapin::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::ParsingError(_) => Some("it is not UTF-8"),
        // A channel of RabbitMQ has crashed, as it does at a message that came by AMQP 1.0 and has no form in AMQP 0.9.1. Its
        // other internal errors say more.
        ErrorKind::ProtocolError(amqp)
            if *amqp.kind() == AMQPErrorKind::Hard(AMQPHardError::INTERNALERROR)
                && amqp.get_message().as_str() == "INTERNAL_ERROR" =>
        {
            Some("RabbitMQ cannot translate it to AMQP 0.9.1")
        }
        _ => None,
    }
}

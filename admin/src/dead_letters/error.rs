//! The errors of [`DeadLetters`](super::DeadLetters).

use std::io;

use hatchery::{BrokerError, PublishError, RegisterError};

use super::queues::LetterQueue;

/// Why letters could not be read, replayed or discarded. Letters that were not acknowledged are in their queue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeadLettersError {
    /// An error of the broker.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The register does not answer, so it is not known which letters are obsolete.
    #[error("which letters are obsolete is not known: {0}")]
    Register(RegisterError),
    /// A replayed event was not confirmed.
    #[error("a replayed event may have arrived, and its letter is still in the queue: {0}")]
    Publish(PublishError),
    /// Discarded letters could not be written to the file.
    #[error("the letters could not be written to the file, and are still in the queue: {0}")]
    File(io::Error),
}

impl DeadLettersError {
    /// Whether the letters of other queues can be seen all the same: this queue is missing, or has a message that cannot be read.
    #[must_use]
    pub const fn is_of_one(&self, queue: &LetterQueue) -> bool {
        match self {
            Self::Broker(BrokerError::Missing { .. } | BrokerError::Unreadable { .. }) => true,
            // Of a former name, which this user has no permission for.
            Self::Broker(BrokerError::Refused { .. }) => queue.is_leftover,
            _ => false,
        }
    }
}

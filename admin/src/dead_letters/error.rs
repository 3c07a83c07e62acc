//! The errors of [`DeadLetters`](super::DeadLetters).

use std::io;

use hatchery::{BrokerError, PublishError, RegisterError};

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

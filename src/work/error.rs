//! The errors of a worker.

use crate::{
    domain::{safety::Unsafe, words::UnknownType},
    ports::{BrokerError, RegisterError},
};

/// Why a worker ended before it was asked to.
///
/// ```no_run
/// # async fn example(worker: hatchery::Worker) -> std::process::ExitCode {
/// use std::process::ExitCode;
/// use hatchery::{BrokerError, CancellationToken, WorkError};
///
/// match worker.run(CancellationToken::new()).await {
///     Ok(_) => ExitCode::SUCCESS,
///     // Somebody has to look at the file, or at the program.
///     Err(error @ (WorkError::UnknownType(_) | WorkError::NoHandler)) => panic!("{error}"),
///     // billing.processor.mail does not exist on the broker; run `topology apply`
///     Err(error) => {
///         eprintln!("{error}");
///         ExitCode::FAILURE
///     }
/// }
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkError {
    /// A handler's type is not in the file. Nothing was started.
    #[error(transparent)]
    UnknownType(#[from] UnknownType),
    /// The worker has no handler and no source.
    #[error("the worker has no handler")]
    NoHandler,
    /// The file has no such source. Nothing was started.
    #[error(
        "there is no source `{name}` in the file{}",
        .nearest.as_ref().map(|name| format!("; is it `{name}`?")).unwrap_or_default()
    )]
    UnknownSource {
        /// The name that is not in the file.
        name: String,
        /// The most similar source of the file, if one is similar enough.
        nearest: Option<String>,
    },
    /// The queue of a source does not exist. It belongs to somebody else, so that `topology apply` does not declare it.
    #[error(
        "there is no queue {queue} on the broker, from which the source {name} takes messages; whoever owns the queue has to declare it"
    )]
    MissingQueue {
        /// The name of the source.
        name: String,
        /// The name of the queue.
        queue: String,
    },
    /// The topology is invalid: its objects could lose an event.
    #[error(transparent)]
    Topology(#[from] Unsafe),
    /// At the start: the broker cannot be reached, refuses the connection, or lacks an object. Later: the broker refuses to let
    /// this user consume, or the program has closed the connection.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// The register is in use by another broker ([`RegisterError::InUse`]). Events that had not started were returned to their
    /// queues.
    #[error(transparent)]
    Register(RegisterError),
}

//! What a worker runs for an event: a Rust closure, a `tower` service, a program ([`exec`]), or a service ([`http`]).

mod answer;
pub mod exec;
mod fields;
pub mod http;
mod json;
mod service;

use std::{fmt::Display, future::Future};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

pub(crate) use self::{json::Json, service::Layered};
use crate::domain::event::Event;
pub use crate::domain::settlement::Outcome;

/// One run of a handler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Run {
    /// The event.
    pub event: Event,
    /// Grows with every run of a (type, reference). Whoever writes the payload as state can refuse a smaller one. None
    /// where the type says `register: off`.
    pub fence: Option<i64>,
    /// Cancelled when the lease is lost or the run is over, at its time limit too: somebody else may be running the same
    /// reference by now. Code that goes on beyond the handler, in a thread, stops when it sees this.
    pub lost: CancellationToken,
}

/// Why a run has no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandlerError {
    /// It failed: a retry.
    #[error("{0}")]
    Failed(String),
    /// It cannot even be started, for no fault of the event: the worker stops and no attempt is spent.
    #[error("the handler cannot be started: {0}")]
    CannotStart(String),
}

impl HandlerError {
    /// A failure, with the whole chain of an anyhow error (`{:#}` shows it).
    pub(crate) fn failed(error: impl Display) -> Self {
        Self::Failed(format!("{error:#}"))
    }
}

/// Handles events of one type.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Handles one event. It may run again for the same event: after an error, and after a crash.
    ///
    /// # Errors
    /// A failure, or that there is nothing to run.
    async fn handle(&self, run: Run) -> Result<Outcome, HandlerError>;
}

/// A handler from an async closure; any error that can be shown is a failure.
pub(crate) struct Closure<F>(pub(crate) F);

#[async_trait]
impl<F, R, E> Handler for Closure<F>
where
    F: Fn(Run) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Outcome, E>> + Send,
    E: Display,
{
    async fn handle(&self, run: Run) -> Result<Outcome, HandlerError> {
        (self.0)(run).await.map_err(HandlerError::failed)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::domain::wire::{self, Incoming, Properties};

    /// A run of an event of the type `mail` with this payload.
    pub(crate) fn run(payload: &'static str) -> Run {
        let incoming =
            Incoming { routing_key: "mail.now".to_owned(), properties: Properties::default(), body: payload.into() };
        let event_type = "mail".parse().expect("a type");
        let event = wire::decode(&event_type, incoming, jiff::Timestamp::UNIX_EPOCH, || "id-1".to_owned());
        Run { event: event.expect("an event"), fence: Some(1), lost: CancellationToken::new() }
    }
}

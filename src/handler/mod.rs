//! What a worker runs for an event: a Rust closure, a `tower` service, a program ([`exec`]), or a service ([`http`]).

mod json;
mod run;
mod service;

use std::{fmt::Display, future::Future};

use async_trait::async_trait;

pub use self::run::{Handler, HandlerError, Run};
pub(crate) use self::{json::Json, service::Layered};
pub use crate::domain::settlement::Outcome;

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
        Run::for_test(event.expect("an event"))
    }
}

//! A worker's handler: a Rust function, a `tower` service, or a type that implements [`Handler`]. The command line has
//! two more, for programs and services (`cli/src/handler`).

mod into_outcome;
mod json;
mod run;
mod service;

use std::future::Future;

use async_trait::async_trait;

pub use self::{
    into_outcome::IntoOutcome,
    run::{Handler, Run},
};
pub(crate) use self::{json::Json, service::Layered};
pub use crate::domain::settlement::Outcome;

/// A handler from an async function or closure.
pub(crate) struct Closure<F>(pub(crate) F);

#[async_trait]
impl<F, R> Handler for Closure<F>
where
    F: Fn(Run) -> R + Send + Sync + 'static,
    R: Future<Output: IntoOutcome> + Send,
{
    async fn handle(&self, run: Run) -> Outcome {
        (self.0)(run).await.into_outcome()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::domain::wire::{self, Incoming, Properties};

    /// Returns a run of an event of the type `mail` with this payload.
    pub(crate) fn run(payload: &'static str) -> Run {
        let incoming =
            Incoming { routing_key: "mail.now".to_owned(), properties: Properties::default(), body: payload.into() };
        let event_type = "mail".parse().expect("a type");
        let event = wire::decode(&event_type, incoming, jiff::Timestamp::UNIX_EPOCH, || "id-1".to_owned());
        Run::of(event.expect("an event"))
    }
}

//! A worker's handler: a Rust function, a `tower` service, or a type that implements [`Handler`]. The command line has
//! two more, for programs and services (`cli/src/handler`).

mod into_outcome;
mod run;
mod service;

use std::{future::Future, marker::PhantomData};

use async_trait::async_trait;
use serde::de::DeserializeOwned;

pub(crate) use self::service::Layered;
pub use self::{
    into_outcome::IntoOutcome,
    run::{Handler, Run},
};
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

/// A handler that parses the payload as JSON first. An event whose payload is not a `T` is dead-lettered, because a retry
/// would not change it.
pub(crate) struct Json<T, F> {
    handler: F,
    payload: PhantomData<fn() -> T>,
}

impl<T, F> Json<T, F> {
    pub(crate) fn new(handler: F) -> Self {
        Self { handler, payload: PhantomData }
    }
}

#[async_trait]
impl<T, F, R> Handler for Json<T, F>
where
    T: DeserializeOwned + Send + 'static,
    F: Fn(T, Run) -> R + Send + Sync + 'static,
    R: Future<Output: IntoOutcome> + Send,
{
    async fn handle(&self, run: Run) -> Outcome {
        let payload = match run.event.json() {
            Ok(payload) => payload,
            Err(error) => return Outcome::dead_letter(format_args!("the payload cannot be read: {error}")),
        };
        (self.handler)(payload, run).await.into_outcome()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

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

    #[tokio::test]
    async fn a_payload_of_another_shape_will_never_work() {
        let handler = Json::new(|payload: BTreeMap<String, u32>, run: Run| async move {
            assert_eq!(run.event.payload.as_ref(), br#"{"pages": 3}"#);
            if payload["pages"] == 3 { Ok(Outcome::Done) } else { Err("too long") }
        });
        assert_eq!(handler.handle(run(r#"{"pages": 3}"#)).await, Outcome::Done);
        let expected = "the payload cannot be read: invalid type: string \"three\", expected u32 at line 1 column 17";
        let answer = handler.handle(run(r#"{"pages": "three"}"#)).await;
        assert_eq!(answer, Outcome::DeadLetter { reason: expected.to_owned() });
    }
}

//! A worker's handler: a Rust function, a `tower` service, or a type that implements [`Handler`]. The command line has
//! two more, for programs and services (`cli/src/handler`).

mod into_outcome;
mod run;

use std::{
    fmt::Display,
    future::{Future, poll_fn},
    marker::PhantomData,
};

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use tower_service::Service;

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

/// A handler that is a `tower` service, so that tower's layers apply: limits, time-outs, traces, metrics.
///
/// Each run calls a clone of the service, because `tower` needs `&mut`. State that runs share is shared between the clones.
pub(crate) struct Layered<S>(pub(crate) S);

#[async_trait]
impl<S> Handler for Layered<S>
where
    S: Service<Run, Response = Outcome> + Clone + Send + Sync + 'static,
    S::Error: Display + Send,
    S::Future: Send,
{
    async fn handle(&self, run: Run) -> Outcome {
        let mut service = self.0.clone();
        let answer = match poll_fn(|context| service.poll_ready(context)).await {
            Ok(()) => service.call(run).await,
            Err(error) => Err(error),
        };
        // The alternate form of an anyhow error has its causes.
        answer.unwrap_or_else(|error| Outcome::retry(format_args!("{error:#}")))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

    use tower::{ServiceBuilder, service_fn};

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

    #[tokio::test]
    async fn layers_go_around_the_handler() {
        let service =
            ServiceBuilder::new().timeout(Duration::from_millis(1)).service(service_fn(|run: Run| async move {
                if run.event.payload.is_empty() {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(Outcome::Done)
            }));
        let handler: Arc<dyn Handler> = Arc::new(Layered(service));
        assert_eq!(handler.handle(run("{}")).await, Outcome::Done);
        assert_eq!(handler.handle(run("")).await, Outcome::retry("request timed out"), "the layer gives up");
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_is_shared_between_runs() {
        let service = ServiceBuilder::new().concurrency_limit(2).service(service_fn(|_: Run| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, Infallible>(Outcome::Done)
        }));
        let handler = Layered(service);
        let started = tokio::time::Instant::now();
        let runs = (0..6).map(|_| handler.handle(run("{}")));
        assert!(futures_util::future::join_all(runs).await.into_iter().all(|run| run == Outcome::Done));
        assert_eq!(started.elapsed().as_secs(), 3);
    }
}

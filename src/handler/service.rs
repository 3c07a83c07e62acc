//! A handler that is a `tower` service, so that tower's layers apply: limits, time-outs, traces, metrics.

use std::{fmt::Display, future::poll_fn};

use async_trait::async_trait;
use tower_service::Service;

use super::run::{Handler, Run};
use crate::domain::settlement::Outcome;

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
mod tests {
    use std::{convert::Infallible, sync::Arc, time::Duration};

    use tower::{ServiceBuilder, service_fn};

    use super::*;
    use crate::handler::tests::run;

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

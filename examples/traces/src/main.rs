//! One event's way as one trace: publish, delay, failure, retry, requeue, done.
//!
//! ```text
//! topology apply -f examples/traces/topology.yaml
//! cargo run -p hatchery-example-traces > spans.txt
//! grep -c 'Name *: run mail' spans.txt        # 3: failed, put off, done
//! grep 'TraceId' spans.txt | sort -u          # one
//!
//! # The same trace in a collector that listens for OTLP over gRPC.
//! OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 cargo run -p hatchery-example-traces
//! ```
//!
//! `AMQP_URL` and `REDIS_URL` are the URLs of RabbitMQ and Redis. Without `OTEL_EXPORTER_OTLP_ENDPOINT` the spans are printed.
//! `scripts/traces` runs this program with a real collector, and checks what the collector received.

use std::{
    collections::HashMap,
    env,
    future::ready,
    time::{Duration, SystemTime},
};

use hatchery::{CancellationToken, Hatchery, NewEvent, Outcome, Publisher, Run, TraceContext, Worker};
use opentelemetry::{propagation::TextMapPropagator as _, trace::TracerProvider as _};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{EnvFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _};

const TOPOLOGY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/topology.yaml");

/// Connects hatchery's spans with OpenTelemetry. A program needs no more than this and [`subscriber`].
#[derive(Clone, Default)]
struct OpenTelemetry(TraceContextPropagator);

impl TraceContext for OpenTelemetry {
    fn traceparent(&self, span: &Span) -> Option<String> {
        let mut headers = HashMap::new();
        self.0.inject_context(&span.context(), &mut headers);
        headers.remove("traceparent")
    }

    fn continue_trace(&self, span: &Span, traceparent: &str) {
        let headers = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
        // Fails if no OpenTelemetry layer listens.
        let _ = span.set_parent(self.0.extract(&headers));
    }
}

/// Returns a subscriber that exports hatchery's spans.
fn subscriber(provider: &SdkTracerProvider) -> impl Subscriber + Send + Sync + use<> {
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("mailer"));
    tracing_subscriber::registry().with(EnvFilter::new("hatchery=info")).with(spans)
}

/// Sends the spans to the collector that the environment names, or prints them.
fn provider() -> anyhow::Result<SdkTracerProvider> {
    let provider = SdkTracerProvider::builder().with_resource(Resource::builder().with_service_name("mailer").build());
    let provider = if env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
        provider.with_batch_exporter(opentelemetry_otlp::SpanExporter::builder().with_tonic().build()?)
    } else {
        provider.with_simple_exporter(opentelemetry_stdout::SpanExporter::default())
    };
    Ok(provider.build())
}

/// Fails in the first run, puts the event off in the second, and succeeds in the third.
fn send(run: &Run, done: &CancellationToken) -> Result<Outcome, String> {
    let event = &run.event;
    match (event.attempts, event.reason.as_deref()) {
        (0, None) => Err("421 the server is busy".to_owned()),
        (0, Some(_)) => {
            done.cancel();
            Ok(Outcome::Done)
        }
        (_, _) => {
            let at = (SystemTime::now() + Duration::from_secs(2)).try_into().map_err(|_| "no such time")?;
            Ok(Outcome::Requeue { at, reason: "the mailbox is full".to_owned() })
        }
    }
}

/// Returns a worker that cancels `done` once the event is done.
fn mailer(worker: Worker, done: CancellationToken) -> Worker {
    worker.trace_context(OpenTelemetry::default()).handle("mail", move |run| ready(send(&run, &done)))
}

async fn publish(publisher: Publisher) -> Result<(), hatchery::PublishError> {
    let mail = NewEvent::new("mail", "Dear Ada").delay(Duration::from_secs(1));
    publisher.trace_context(OpenTelemetry::default()).publish(mail).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let provider = provider()?;
    subscriber(&provider).init();
    let url = |name, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let hatchery = Hatchery::builder(hatchery::read_file(TOPOLOGY)?)
        .amqp_url(url("AMQP_URL", "amqp://localhost"))
        .redis_url(url("REDIS_URL", "redis://localhost"))
        .connect()
        .await?;
    publish(hatchery.publisher()).await?;
    let done = CancellationToken::new();
    mailer(hatchery.worker(), done.clone()).run(done).await?;
    hatchery.close().await;
    // Sends the spans that still wait.
    provider.shutdown()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        mem,
        sync::{Arc, Mutex},
    };

    use hatchery::testing::TestHatchery;
    use opentelemetry_sdk::{
        error::OTelSdkResult,
        trace::{SpanData, SpanExporter},
    };

    use super::*;

    /// Keeps the spans.
    #[derive(Clone, Debug, Default)]
    struct Kept(Arc<Mutex<Vec<SpanData>>>);

    impl SpanExporter for Kept {
        async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
            self.0.lock().expect("no panic").extend(spans);
            Ok(())
        }
    }

    fn text(span: &SpanData, key: &str) -> String {
        let value = span.attributes.iter().find(|attribute| attribute.key.as_str() == key);
        value.map(|attribute| attribute.value.as_str().into_owned()).unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_publish_and_all_runs_of_its_event_are_one_trace() {
        let kept = Kept::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(kept.clone()).build();
        let _listening = tracing::subscriber::set_default(subscriber(&provider));
        let now = SystemTime::now().try_into().expect("a time");
        let hatchery = TestHatchery::starting_at(hatchery::read_file(TOPOLOGY).expect("a valid file"), now);
        publish(hatchery.publisher()).await.expect("published");
        hatchery.start(mailer(hatchery.worker(), CancellationToken::new()));
        hatchery.advance(Duration::from_mins(1)).await.expect("the worker runs");
        hatchery.stop().await.expect("the worker ends");

        let spans = mem::take(&mut *kept.0.lock().expect("no panic"));
        let ways: Vec<_> = spans.iter().map(|span| (span.name.as_ref(), text(span, "outcome"))).collect();
        let way = |name, outcome: &str| (name, outcome.to_owned());
        let expected =
            [way("publish mail", ""), way("run mail", "retry"), way("run mail", "requeue"), way("run mail", "done")];
        assert_eq!(ways, expected);
        let published = spans[0].span_context.clone();
        for run in &spans[1..] {
            assert_eq!(run.span_context.trace_id(), published.trace_id(), "{run:?}");
            assert_eq!(run.parent_span_id, published.span_id(), "{run:?}");
            assert_eq!(text(run, "id"), text(&spans[0], "id"));
        }
    }
}

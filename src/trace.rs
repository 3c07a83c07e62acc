//! The spans of an event's way, and how a tracing system such as OpenTelemetry continues one trace through all of them.
//!
//! The crate makes spans of `tracing`: `publish` around a publish, and `run` around each run of a handler. An event carries
//! its trace as the header `traceparent`, which all its copies keep: delays, retries and requeues too.

use std::sync::Arc;

use tracing::Span;

use crate::domain::{event::Event, settlement::Outcome, wire::SHORT, words::Reference};

/// Connects the spans of this crate with a tracing system, such as OpenTelemetry.
///
/// Publishers and workers take one ([`Publisher::trace_context`](crate::Publisher::trace_context),
/// [`Worker::trace_context`](crate::Worker::trace_context)): a publish puts the trace of its span into the event, and each run of
/// the event continues it. `examples/traces` is a whole program. With `tracing-opentelemetry`:
///
/// ```text
/// struct OpenTelemetry(TraceContextPropagator);
///
/// impl TraceContext for OpenTelemetry {
///     fn traceparent(&self, span: &Span) -> Option<String> {
///         let mut headers = HashMap::new();
///         self.0.inject_context(&span.context(), &mut headers);
///         headers.remove("traceparent")
///     }
///
///     fn continue_trace(&self, span: &Span, traceparent: &str) {
///         let headers = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
///         let _ = span.set_parent(self.0.extract(&headers));
///     }
/// }
/// ```
pub trait TraceContext: Send + Sync + 'static {
    /// Returns the W3C `traceparent` of a span. `None` if the span belongs to no trace.
    fn traceparent(&self, span: &Span) -> Option<String>;

    /// Makes a span that was not entered yet the child of the span with this `traceparent`. A stranger may have written the
    /// text: one that cannot be read is ignored.
    fn continue_trace(&self, span: &Span, traceparent: &str);
}

/// The trace context that a publisher or a worker was given.
pub(crate) type Traces = Option<Arc<dyn TraceContext>>;

/// Begins the span of a publish. The event carries its trace on.
pub(crate) fn publish(traces: &Traces, event: &mut Event) -> Span {
    let Event { id, event_type, .. } = &*event;
    let span = tracing::info_span!(
        "publish",
        otel.name = %format_args!("publish {event_type}"),
        otel.kind = "producer",
        %id,
        %event_type,
        reference = event.reference.as_ref().map(Reference::as_str),
        nbf = event.nbf.map(tracing::field::display),
    );
    if let (Some(traces), None) = (traces, &event.traceparent) {
        event.traceparent = traces.traceparent(&span).filter(|text| (1..=SHORT).contains(&text.len()));
    }
    span
}

/// Begins the span of a run. It continues the trace of the event.
pub(crate) fn run(traces: &Traces, event: &Event, tries: u32) -> Span {
    let Event { id, event_type, attempts, .. } = event;
    let span = tracing::info_span!(
        "run",
        otel.name = %format_args!("run {event_type}"),
        otel.kind = "consumer",
        otel.status_code = tracing::field::Empty,
        outcome = tracing::field::Empty,
        reason = tracing::field::Empty,
        %id,
        %event_type,
        reference = event.reference.as_ref().map(Reference::as_str),
        nbf = event.nbf.map(tracing::field::display),
        attempts = i64::from(*attempts),
        tries = i64::from(tries),
    );
    if let (Some(traces), Some(traceparent)) = (traces, &event.traceparent) {
        traces.continue_trace(&span, traceparent);
    }
    span
}

/// Notes the outcome in the span of its run. `None` if the event was cancelled.
pub(crate) fn ended(span: &Span, outcome: Option<&Outcome>) {
    if span.is_disabled() {
        return;
    }
    let Some(outcome) = outcome else {
        span.record("outcome", "cancelled");
        return;
    };
    let (name, reason) = match outcome {
        Outcome::Done => ("done", None),
        Outcome::Requeue { reason, .. } => ("requeue", Some(reason)),
        Outcome::Retry { reason, .. } => ("retry", Some(reason)),
        Outcome::DeadLetter { reason } => ("dead-letter", Some(reason)),
        Outcome::Discard { reason } => ("discard", Some(reason)),
        Outcome::Unavailable { reason } => ("unavailable", Some(reason)),
    };
    span.record("outcome", name);
    if let Some(reason) = reason {
        span.record("reason", reason);
    }
    if matches!(outcome, Outcome::Retry { .. } | Outcome::DeadLetter { .. }) {
        span.record("otel.status_code", "ERROR");
    }
}

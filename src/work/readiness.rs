//! Tells whether a worker consumes: for the probes of an orchestrator, and as a metric.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use metrics::{Gauge, gauge};

use crate::{
    domain::words::{EventType, Word},
    meter,
};

/// Tells whether a worker consumes, for a readiness probe. [`Worker::readiness`](crate::Worker::readiness) returns it.
///
/// ```no_run
/// # async fn example(worker: hatchery::Worker) -> std::io::Result<()> {
/// use axum::{Router, http::StatusCode, routing::get};
///
/// let readiness = worker.readiness();
/// let ready = move || async move {
///     if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
/// };
/// let port = tokio::net::TcpListener::bind("0.0.0.0:9464").await?;
/// axum::serve(port, Router::new().route("/readyz", get(ready))).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Types>);

#[derive(Debug, Default)]
struct Types {
    /// The number of types and sources of the running worker. 0 before it starts, and once it stops.
    wanted: AtomicUsize,
    /// The number of types and sources that have a consumer.
    consuming: AtomicUsize,
}

impl Readiness {
    /// Returns true while the worker consumes the queues of all its types and sources. It does not before it has started, once it stops,
    /// while the broker cannot be reached, and while Redis is down and a type needs it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let wanted = self.0.wanted.load(Ordering::Relaxed);
        wanted > 0 && self.0.consuming.load(Ordering::Relaxed) >= wanted
    }

    /// Notes that a worker with this many types and sources starts.
    pub(super) fn starts(&self, types: usize) {
        self.0.wanted.store(types, Ordering::Relaxed);
    }

    /// Notes that the worker stops: what runs is finished, and nothing is started any more.
    pub(super) fn stops(&self) {
        self.0.wanted.store(0, Ordering::Relaxed);
    }

    /// Returns the readiness of one type.
    pub(super) fn of(&self, event_type: &EventType) -> TypeReadiness {
        self.with(gauge!(meter::CONSUMING, "type" => event_type.as_str().to_owned()))
    }

    /// Returns the readiness of one source, which counts like a type.
    pub(super) fn of_source(&self, source: &Word) -> TypeReadiness {
        self.with(gauge!(meter::SOURCE_CONSUMING, "source" => source.as_str().to_owned()))
    }

    fn with(&self, gauge: Gauge) -> TypeReadiness {
        // Shows 0 from the start, and adds up where two workers of one process have the type.
        gauge.increment(0.0);
        TypeReadiness { worker: self.clone(), gauge }
    }
}

/// Whether one type has a consumer.
pub(super) struct TypeReadiness {
    worker: Readiness,
    gauge: Gauge,
}

impl TypeReadiness {
    /// Notes that a consumer is open, until the returned value is dropped.
    pub(super) fn consuming(&self) -> Consuming {
        self.worker.0.consuming.fetch_add(1, Ordering::Relaxed);
        self.gauge.increment(1.0);
        Consuming { worker: self.worker.clone(), gauge: self.gauge.clone() }
    }
}

/// A type has a consumer while this value lives.
#[must_use]
pub(super) struct Consuming {
    worker: Readiness,
    gauge: Gauge,
}

impl Drop for Consuming {
    fn drop(&mut self) {
        self.worker.0.consuming.fetch_sub(1, Ordering::Relaxed);
        self.gauge.decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_ready_while_it_consumes_all_its_types_and_does_not_stop() {
        let readiness = Readiness::default();
        let types = ["mail", "sms"].map(|name| readiness.of(&name.parse().expect("a type")));
        assert!(!readiness.is_ready(), "the worker has not started");
        readiness.starts(2);
        let first = types[0].consuming();
        assert!(!readiness.is_ready(), "one type has no consumer");
        let _second = types[1].consuming();
        assert!(readiness.is_ready());
        drop(first);
        assert!(!readiness.is_ready(), "a consumer has ended");
        let _first = types[0].consuming();
        assert!(readiness.is_ready());
        readiness.stops();
        assert!(!readiness.is_ready(), "the worker stops");
    }
}

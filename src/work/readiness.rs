//! Tells whether a worker consumes: for the probes of an orchestrator, and as a metric.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use metrics::{Gauge, gauge};

use super::switches::Switch;
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
    all: Mutex<Vec<Arc<OfType>>>,
}

/// One type or source.
#[derive(Debug)]
struct OfType {
    /// The number of its consumers.
    consuming: AtomicUsize,
    switch: Switch,
}

impl OfType {
    fn is_ready(&self) -> bool {
        self.consuming.load(Ordering::Relaxed) > 0 || self.switch.is_paused()
    }
}

impl Readiness {
    /// Returns true while the worker consumes the queues of all its types and sources but those that are paused. It returns false before
    /// the worker has started and has read which types are paused, and once the worker stops. A type that is not paused has no consumer
    /// while the broker cannot be reached, and while Redis is down and the type needs it.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let wanted = self.0.wanted.load(Ordering::Relaxed);
        let all = self.0.all.lock().unwrap_or_else(PoisonError::into_inner);
        wanted > 0 && all.iter().filter(|one| one.is_ready()).count() >= wanted
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
    pub(super) fn of(&self, event_type: &EventType, switch: Switch) -> TypeReadiness {
        self.with(switch, gauge!(meter::CONSUMING, "type" => event_type.as_str().to_owned()))
    }

    /// Returns the readiness of one source, which counts like a type.
    pub(super) fn of_source(&self, source: &Word, switch: Switch) -> TypeReadiness {
        self.with(switch, gauge!(meter::SOURCE_CONSUMING, "source" => source.as_str().to_owned()))
    }

    fn with(&self, switch: Switch, gauge: Gauge) -> TypeReadiness {
        // Shows 0 from the start, and adds up where two workers of one process have the type.
        gauge.increment(0.0);
        let one = Arc::new(OfType { consuming: AtomicUsize::new(0), switch });
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&one));
        TypeReadiness { one, gauge }
    }
}

/// Whether one type has a consumer.
pub(super) struct TypeReadiness {
    one: Arc<OfType>,
    gauge: Gauge,
}

impl TypeReadiness {
    /// Notes that a consumer is open, until the returned value is dropped.
    pub(super) fn consuming(&self) -> Consuming {
        self.one.consuming.fetch_add(1, Ordering::Relaxed);
        self.gauge.increment(1.0);
        Consuming { one: Arc::clone(&self.one), gauge: self.gauge.clone() }
    }
}

/// A type has a consumer while this value lives.
#[must_use]
pub(super) struct Consuming {
    one: Arc<OfType>,
    gauge: Gauge,
}

impl Drop for Consuming {
    fn drop(&mut self) {
        self.one.consuming.fetch_sub(1, Ordering::Relaxed);
        self.gauge.decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::switches::Switchboard;

    const NOTHING: &str = r#"{"number":1,"pauses":[]}"#;
    const MAIL: &str =
        r#"{"number":1,"pauses":[{"of":{"type":"mail"},"by":"person","reason":"R","since":"2026-06-01T12:00:00Z"}]}"#;

    fn types(board: &Switchboard, readiness: &Readiness) -> [TypeReadiness; 2] {
        ["mail", "sms"].map(|name| {
            let event_type = name.parse().expect("a type");
            readiness.of(&event_type, board.of(&event_type))
        })
    }

    #[test]
    fn a_worker_is_ready_while_it_consumes_all_its_types_that_are_not_paused() {
        let (board, readiness) = (Switchboard::default(), Readiness::default());
        let types = types(&board, &readiness);
        readiness.starts(2);
        let sms = types[1].consuming();
        assert!(!readiness.is_ready(), "the switches are not read");
        board.set_by(NOTHING);
        assert!(!readiness.is_ready(), "mail has no consumer");
        board.set_by(MAIL);
        assert!(readiness.is_ready());
        let _mail = types[0].consuming();
        drop(sms);
        assert!(!readiness.is_ready(), "a second consumer of a paused type is none of another type");
    }

    #[test]
    fn a_worker_is_ready_while_it_consumes_all_its_types_and_does_not_stop() {
        let (board, readiness) = (Switchboard::default(), Readiness::default());
        let types = types(&board, &readiness);
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

//! Notes when acknowledgements are written, as the library's log tells it at the level of traces.

use std::sync::{Mutex, MutexGuard};

use jiff::Timestamp;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::Context,
    registry::LookupSpan,
};

use crate::lock;

/// The module that writes acknowledgements.
const WRITES: &str = "hatchery::adapters::rabbitmq::receipts";

/// When each delivery was acknowledged, in microseconds since 1970, from the first [`take`] on.
static TIMES: Mutex<Option<Vec<i64>>> = Mutex::new(None);

/// Notes that deliveries are acknowledged now.
pub fn note(deliveries: u64) {
    if let Some(times) = &mut *times() {
        let now = Timestamp::now().as_microsecond();
        times.extend((0..deliveries).map(|_| now));
    }
}

/// Takes the notes, in order.
pub fn take() -> Vec<i64> {
    times().replace(Vec::new()).unwrap_or_default()
}

fn times() -> MutexGuard<'static, Option<Vec<i64>>> {
    lock(&TIMES)
}

/// Returns the layer that notes what the library writes.
pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    Notes.with_filter(Targets::new().with_target(WRITES, LevelFilter::TRACE))
}

struct Notes;

impl<S: Subscriber> Layer<S> for Notes {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        event.record(&mut Deliveries);
    }
}

struct Deliveries;

impl Visit for Deliveries {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "deliveries" {
            note(value);
        }
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {}
}

//! A circuit breaker: its keys in the file, and its state as far as it is known.

use hatchery::{
    EventType,
    internals::breaker::{BreakerSpec, BreakerState},
};

/// The breaker of a type: its keys in the file, and its state in Redis.
#[derive(Clone, Debug)]
pub struct BreakerInfo {
    /// The type.
    pub event_type: EventType,
    /// The keys.
    pub spec: BreakerSpec,
    /// Its state.
    pub state: Known,
}

/// The state of a breaker, as far as it is known.
#[derive(Clone, Debug)]
pub enum Known {
    /// The state that the workers share.
    Shared(BreakerState),
    /// The type has `register: off`: each worker has a breaker of its own, and nobody else knows its state.
    OfEachWorker,
    /// The text in Redis is no state. The next worker with an event of the type replaces it.
    NoState,
}

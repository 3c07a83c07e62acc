//! A circuit breaker: its keys in the file, and its state as far as it is known.

use hatchery::{
    EventType, RegisterError, Topology,
    internals::{
        breaker::{BreakerSpec, BreakerState},
        ports::{NamedStates, StateKind},
        spec::TypeSpec,
    },
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

/// Returns the breakers of a file, by type.
pub(crate) async fn read(
    topology: &Topology,
    states: &(impl NamedStates + ?Sized),
) -> Result<Vec<BreakerInfo>, RegisterError> {
    let is_any_shared = topology.types.values().any(|spec| spec.register && spec.breaker.is_some());
    let states = if is_any_shared { states.states(StateKind::Breaker).await? } else { [].into() };
    let info = |(event_type, spec): (&EventType, &TypeSpec)| {
        let state = || match states.get(spec.first_name(event_type).as_str()) {
            Some(text) => BreakerState::parse(text).map_or(Known::NoState, Known::Shared),
            None => Known::Shared(BreakerState::default()),
        };
        Some(BreakerInfo {
            event_type: event_type.clone(),
            spec: spec.breaker.clone()?,
            state: if spec.register { state() } else { Known::OfEachWorker },
        })
    };
    Ok(topology.types.iter().filter_map(info).collect())
}

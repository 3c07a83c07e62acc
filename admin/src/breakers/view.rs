//! A circuit breaker: its state as far as it is known, and as JSON, for the command line and the server of the API.

use hatchery::{
    EventType, RegisterError, Topology,
    internals::{
        breaker::{BreakerSpec, BreakerState, ClosedBy, Errors, Phase},
        ports::{NamedStates, StateKind},
        spec::TypeSpec,
        ttl::say,
        words::plain,
    },
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::text::percent;

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

/// The answer of `topology breaker list`.
#[derive(Serialize, JsonSchema)]
pub struct BreakerList {
    /// The breakers, by type.
    pub breakers: Vec<BreakerView>,
}

/// The circuit breaker of a type.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct BreakerView {
    /// The type.
    #[serde(rename = "type")]
    pub event_type: String,
    /// `closed`, `open`, `half-open` once its cooldown is over, `of each worker` where the type has `register: off`, or `unreadable`.
    pub state: &'static str,
    /// The errors that open it, such as `100` or `50%`.
    pub errors: String,
    /// The time in which they come.
    pub window: String,
    /// How long it is open at first, or `manual`.
    pub cooldown: String,
    /// The number of its last opening; `null` if there was none.
    pub number: Option<i64>,
    /// How many rounds of probes have failed in that opening.
    pub failed_probes: u32,
    /// When it opened last.
    #[schemars(with = "Option<String>")]
    pub opened_at: Option<Timestamp>,
    /// When its cooldown is over; `null` unless it is open and has a cooldown.
    #[schemars(with = "Option<String>")]
    pub tried_at: Option<Timestamp>,
    /// How many events are tried now.
    pub tried: usize,
    /// The errors and the runs that opened it.
    pub opened_by: Option<Counted>,
    /// The last reasons from before it opened.
    pub reasons: Vec<String>,
    /// `probes` or `person`, if it was open and is closed.
    pub closed_by: Option<&'static str>,
}

/// Runs within a window.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Counted {
    /// The errors.
    pub errors: u64,
    /// The runs.
    pub runs: u64,
}

/// The answer of `topology breaker close`.
#[derive(Serialize, JsonSchema)]
pub struct ClosedBreaker {
    /// The type.
    #[serde(rename = "type")]
    pub event_type: String,
    /// Whether the breaker was open.
    pub changed: bool,
}

impl BreakerView {
    /// Returns a breaker as JSON at this time by Redis's clock.
    #[must_use]
    pub fn of(BreakerInfo { event_type, spec, state }: &BreakerInfo, now: Timestamp) -> Self {
        let (known, other) = match state {
            Known::Shared(state) => (state.clone(), None),
            Known::OfEachWorker => (BreakerState::default(), Some("of each worker")),
            Known::NoState => (BreakerState::default(), Some("unreadable")),
        };
        let now = now.as_millisecond();
        let is_half_open = known.is_half_open(spec, now);
        let BreakerState { era, phase, opening, .. } = &known;
        Self {
            event_type: event_type.to_string(),
            state: other.unwrap_or(match phase {
                Phase::Closed { .. } => "closed",
                _ if is_half_open => "half-open",
                Phase::Open { .. } | Phase::HalfOpen { .. } => "open",
            }),
            errors: match spec.errors {
                Errors::Count(count) => count.to_string(),
                Errors::Share { thousandths, .. } => percent(thousandths),
            },
            window: say(spec.window),
            cooldown: spec.cooldown.map_or_else(|| "manual".to_owned(), say),
            number: (era.number > 0).then_some(era.number),
            failed_probes: era.round,
            opened_at: opening.as_ref().and_then(|opening| time(opening.at)),
            tried_at: known.until(spec).filter(|_| !is_half_open).and_then(time),
            tried: known.tried(now),
            opened_by: opening.as_ref().map(|opening| Counted { errors: opening.errors, runs: opening.runs }),
            reasons: opening
                .iter()
                .flat_map(|opening| &opening.reasons)
                .map(|reason| plain(reason).into_owned())
                .collect(),
            closed_by: match phase {
                Phase::Closed { by, .. } => by.map(|by| match by {
                    ClosedBy::Probes => "probes",
                    ClosedBy::Person => "person",
                }),
                Phase::Open { .. } | Phase::HalfOpen { .. } => None,
            },
        }
    }
}

fn time(ms: i64) -> Option<Timestamp> {
    Timestamp::from_millisecond(ms).ok()
}

//! The figures of each type, and of what belongs to no type.

use hatchery::{
    EventType, Topology, Word,
    internals::{names::Names, source::SourceSpec, spec::TypeSpec, time::millis_text},
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use super::observation::{Observation, Redis};

/// The figures of a type. `None` means that the figure is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TypeLine {
    /// The name of the type.
    #[serde(rename = "type")]
    pub name: String,
    /// Events that are due: they wait for a worker, or run.
    pub due: Option<u64>,
    /// How long the oldest due event has waited, in seconds; 0 if none waits. Only the register
    /// knows it, and it may have too many dead letters to find it.
    pub late_seconds: Option<u64>,
    /// Events that are not due yet, without those that wait for their next attempt in a retry queue. Only the register
    /// knows them.
    pub delayed: Option<u64>,
    /// The due time of the next event that is not due yet.
    #[serde(serialize_with = "maybe_in_millis")]
    #[schemars(with = "Option<String>")]
    pub next_due: Option<Timestamp>,
    /// Events in the retry queues. Of a type whose retries go through the ladder they are not known.
    pub retrying: Option<u64>,
    /// Events in the dead-letter queue.
    pub dead: Option<u64>,
    /// Events that come into the processing queue, a second.
    pub in_rate: Option<f64>,
    /// Events that leave the processing queue, a second: handled, given up or put off.
    pub out_rate: Option<f64>,
    /// Consumers of the processing queue: usually one a worker.
    pub workers: Option<u64>,
    /// Whether the type is paused; `null` if that is not known.
    pub paused: Option<bool>,
    /// How many events the register has of this type. `None` also with `register: off`.
    #[serde(skip)]
    registered: Option<u64>,
}

/// Writes a time with milliseconds, as on the wire.
pub(super) fn in_millis<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    millis_text(*time).serialize(serializer)
}

#[expect(clippy::ref_option, reason = "serde calls it")]
pub(super) fn maybe_in_millis<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(millis_text).serialize(serializer)
}

/// The queues of a type.
pub(super) struct Queues {
    pub(super) processing: String,
    pub(super) retry: Vec<String>,
    pub(super) dead_letters: String,
    pub(super) quarantine: Option<String>,
}

impl Queues {
    pub(super) fn of(names: &Names, event_type: &EventType, spec: &TypeSpec) -> Self {
        Self {
            processing: names.processing(event_type),
            retry: spec.retry_queues().into_iter().map(|ttl| names.retrying(event_type, ttl)).collect(),
            dead_letters: names.dead_letters(event_type),
            quarantine: spec.has_quarantine().then(|| names.quarantine_queue(event_type)),
        }
    }

    /// Returns the names of all of them.
    pub(super) fn into_names(self) -> impl Iterator<Item = String> {
        [self.processing, self.dead_letters].into_iter().chain(self.retry).chain(self.quarantine)
    }
}

/// Returns the figures of every type.
pub(super) fn lines(topology: &Topology, seen: &Observation) -> Vec<TypeLine> {
    let names = Names::new(topology.name.clone());
    topology.types.iter().map(|(name, spec)| line(name, spec, &Queues::of(&names, name, spec), seen)).collect()
}

fn line(name: &EventType, spec: &TypeSpec, queues: &Queues, seen: &Observation) -> TypeLine {
    let figures = seen.queue(&queues.processing);
    let counts = seen.registered(name);
    let retrying = if spec.retry_queues().is_empty() {
        // With `block` and `drop` there is no other way to be retried.
        (spec.retry.jitter == 0).then_some(0)
    } else {
        seen.held(queues.retry.iter().map(String::as_str))
    };
    let out_rate = figures.and_then(|figures| {
        let stats = figures.message_stats.as_ref();
        match (stats.and_then(|stats| stats.ack_details), figures.messages_details) {
            (Some(rate), _) => Some(rate.rate),
            // Nothing was acknowledged yet, and rates are kept.
            (None, Some(_)) => Some(0.0),
            (None, None) => None,
        }
    });
    let growth = figures.and_then(|figures| figures.messages_details);
    TypeLine {
        name: name.to_string(),
        due: seen.held([queues.processing.as_str()].into_iter().chain(queues.quarantine.as_deref())),
        late_seconds: seen.oldest_due.get(name).map(|due| late_seconds(seen.at, *due)),
        delayed: counts.map(|counts| counts.delayed.saturating_sub(retrying.unwrap_or_default())),
        next_due: counts.and_then(|counts| counts.next_due),
        retrying,
        dead: seen.held([queues.dead_letters.as_str()]),
        in_rate: out_rate.zip(growth).map(|(out, growth)| (out + growth.rate).max(0.0)),
        out_rate,
        workers: figures.and_then(|figures| figures.counts.consumers),
        paused: seen.switches.as_ref().map(|_| seen.paused_type(name).is_some()),
        registered: counts.map(|counts| counts.due + counts.delayed),
    }
}

fn late_seconds(now: Timestamp, due: Option<Timestamp>) -> u64 {
    due.and_then(|due| u64::try_from(now.duration_since(due).as_secs()).ok()).unwrap_or_default()
}

/// The figures of a source. `None` means that the figure is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct SourceLine {
    /// The name of the source.
    pub source: String,
    /// The queue that its messages come from.
    pub queue: String,
    /// Messages in the queue: they wait for a worker, or become events now.
    pub waiting: Option<u64>,
    /// Messages in its dead-letter queue.
    pub dead: Option<u64>,
    /// Consumers of the queue.
    pub workers: Option<u64>,
    /// Whether the source is paused; `null` if that is not known.
    pub paused: Option<bool>,
}

/// Returns the figures of every source.
pub(super) fn source_lines(topology: &Topology, seen: &Observation) -> Vec<SourceLine> {
    let names = Names::new(topology.name.clone());
    let line = |(name, spec): (&Word, &SourceSpec)| {
        let queue = spec.queue(&names, name);
        SourceLine {
            source: name.to_string(),
            waiting: seen.held([queue.as_str()]),
            dead: seen.held([names.source_dead_letters(name).as_str()]),
            workers: seen.queue(&queue).and_then(|figures| figures.counts.consumers),
            paused: seen.switches.as_ref().map(|_| seen.paused_source(name).is_some()),
            queue,
        }
    };
    topology.sources.iter().map(line).collect()
}

/// A place with messages that have no line in a list of events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unlisted {
    /// The queue or the type.
    pub place: String,
    /// RabbitMQ's count less that of the register.
    pub messages: u64,
}

/// Returns the places with messages that have no line in a list of events: unrouted ones, foreign ones, poison, events of
/// types with `register: off`, and copies that a newer event of their reference has replaced.
pub(super) fn unlisted(topology: &Topology, lines: &[TypeLine], seen: &Observation) -> Vec<Unlisted> {
    let names = Names::new(topology.name.clone());
    let mut places = vec![Unlisted {
        messages: seen.held([names.unrouted().as_str()]).unwrap_or_default(),
        place: names.unrouted(),
    }];
    // The events of all types that the register has and that are in none of their type's queues.
    let mut elsewhere = 0;
    for line in lines {
        let is_registered = topology.types.get(line.name.as_str()).is_some_and(|spec| spec.register);
        if is_registered && line.registered.is_none() {
            // Redis did not tell what the register has.
            continue;
        }
        let there = [line.due, line.retrying, line.dead].into_iter().flatten().sum::<u64>();
        let known = line.registered.unwrap_or_default();
        elsewhere += known.saturating_sub(there).max(line.delayed.unwrap_or_default());
        places.push(Unlisted { place: line.name.clone(), messages: there.saturating_sub(known) });
    }
    if matches!(seen.redis, Redis::There(_) | Redis::Unused) {
        // Timers belong to no type. They hold delayed events, and due events whose reference is busy or whose handler is
        // unavailable.
        let (timers, held) = timers(&names, seen);
        places.push(Unlisted { place: timers, messages: held.saturating_sub(elsewhere) });
    }
    places.retain(|place| place.messages > 0);
    places
}

/// Returns the name of all hatcheries and ladders together, and how many messages they hold.
fn timers(names: &Names, seen: &Observation) -> (String, u64) {
    let owner = names.owner();
    let kinds = [format!("{owner}.hatchery."), format!("{owner}.ladder.")];
    let timers = seen.queues().iter().filter(|(name, _)| kinds.iter().any(|kind| name.starts_with(kind)));
    (format!("{owner}.hatchery.* and .ladder.*"), timers.filter_map(|(_, figures)| figures.held()).sum())
}

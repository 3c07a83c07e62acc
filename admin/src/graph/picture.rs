//! The parts of a topology that every format draws: timers, the ladder, and a lane for each type.

use std::{collections::BTreeSet, time::Duration};

use hatchery::internals::{
    compile::{BUSY, hatcheries},
    delay::Ladder,
    life_cycle::{LifeCycle, Told},
    names::{self, Names},
    schedule::definition::Definition,
    source::SourceSpec,
    spec::{Coalesce, Delayed, Immediate, OnFailure, Retry, Topology, TypeSpec},
    ttl::{Ttl, say},
    words::{EventType, Word},
};

use crate::text::{count, percent};

/// Describes the messages of a quarantine queue.
pub(super) const QUARANTINE: &str = "events redelivered twice; each runs alone";

/// The most lanes that are drawn; a larger picture cannot be read. If there are more types, those with equal settings
/// share a lane, and further lanes are left out.
const MOST_LANES: usize = 12;

/// A topology, reduced to the parts that are drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    pub(super) name: String,
    pub(super) timers: Vec<Timer>,
    pub(super) ladder: Ladder,
    /// The lanes.
    pub lanes: Vec<Swimlane>,
    pub(super) sources: Vec<SourceQueue>,
    /// The schedules of the types that are drawn.
    pub(super) schedules: Vec<Schedule>,
    /// Describes the stream that is told what happens to events. `None` without one.
    pub(super) life_cycle: Option<String>,
    /// The number of types of the topology.
    pub(super) types: usize,
    /// The number of types that are in no lane.
    pub left_out: usize,
}

/// Says in one line which transitions the stream keeps.
fn about_life_cycle(spec: &LifeCycle) -> String {
    let told = if spec.events == Told::All { "what happens to events" } else { "failures, and what people have done" };
    let size = if spec.max_size.is_multiple_of(1 << 30) {
        format!("{}GiB", spec.max_size >> 30)
    } else {
        format!("{}MiB", spec.max_size >> 20)
    };
    format!("a stream: {told}, for {} or {size}; no event comes here", say(spec.keep))
}

/// A hatchery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Timer {
    pub(super) ttl: Ttl,
    /// Why the topology has it; at least one reason.
    pub(super) purposes: Vec<String>,
}

/// A queue of foreign messages that become events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceQueue {
    /// The source as a word, `source-hr`.
    pub(super) word: String,
    /// The queue: of this topology without the topology's name, of somebody else as it is.
    pub(super) queue: String,
    pub(super) is_declared: bool,
    /// The use of the messages, in one line.
    pub(super) about: String,
}

impl SourceQueue {
    fn new(names: &Names, name: &Word, spec: &SourceSpec) -> Self {
        let queue = spec.queue(names, name);
        let types: BTreeSet<&str> = spec.rules.iter().map(|rule| rule.event_type.as_str()).collect();
        let types = types.into_iter().collect::<Vec<_>>().join(", ");
        let whose = if spec.is_declared() { "" } else { "of somebody else; " };
        let order = if spec.keeps_order() { ", in order" } else { "" };
        Self {
            word: names::source_word(name),
            queue: queue.strip_prefix(&format!("{}.", names.owner())).unwrap_or(&queue).to_owned(),
            is_declared: spec.is_declared(),
            about: format!("{whose}messages that become events of {types}{order}"),
        }
    }
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) name: String,
    pub(super) event_type: EventType,
    /// When its events run, in one line.
    pub(super) about: String,
}

impl Schedule {
    fn new(definition: &Definition) -> Self {
        Self {
            name: definition.name.to_string(),
            event_type: definition.event_type.clone(),
            about: definition.rule.calendar.to_string(),
        }
    }
}

/// A type, or several that differ only in their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swimlane {
    /// The types.
    pub types: Vec<EventType>,
    pub(super) concurrency: u16,
    pub(super) prefetch: u16,
    pub(super) timeout: Duration,
    pub(super) coalesce: Coalesce,
    pub(super) on_failure: OnFailure,
    pub(super) retries: BTreeSet<Ttl>,
    pub(super) retry: Retry,
    pub(super) has_quarantine: bool,
}

impl Picture {
    /// Draws the whole topology.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let mut lanes: Vec<Swimlane> = topology.types.iter().map(|(name, spec)| Swimlane::new(name, spec)).collect();
        if lanes.len() > MOST_LANES {
            lanes = grouped(lanes);
        }
        let left_out = lanes.iter().skip(MOST_LANES).map(|lane| lane.types.len()).sum();
        lanes.truncate(MOST_LANES);
        Self::with(topology, lanes, left_out)
    }

    /// Draws only these types, each in a lane of its own.
    #[must_use]
    pub fn of(topology: &Topology, types: &BTreeSet<EventType>) -> Self {
        let chosen = topology.types.iter().filter(|(name, _)| types.contains(*name));
        let lanes: Vec<Swimlane> = chosen.map(|(name, spec)| Swimlane::new(name, spec)).collect();
        let left_out = topology.types.len() - lanes.len();
        Self::with(topology, lanes, left_out)
    }

    fn with(topology: &Topology, lanes: Vec<Swimlane>, left_out: usize) -> Self {
        let names = Names::new(topology.name.clone());
        let sources = topology.sources.iter().map(|(name, spec)| SourceQueue::new(&names, name, spec));
        let is_drawn = |name: &EventType| lanes.iter().any(|lane| lane.types.contains(name));
        let schedules = topology.schedules.values().filter(|definition| is_drawn(&definition.event_type));
        let schedules = schedules.map(Schedule::new).collect();
        let timers = hatcheries(topology).into_iter().map(|ttl| Timer { ttl, purposes: purposes(topology, ttl) });
        Self {
            name: topology.name.to_string(),
            timers: timers.collect(),
            ladder: topology.ladder,
            lanes,
            sources: sources.collect(),
            schedules,
            life_cycle: topology.life_cycle.has_stream().then(|| about_life_cycle(&topology.life_cycle)),
            types: topology.types.len(),
            left_out,
        }
    }

    /// Returns the numbers of types, hatcheries and ladder levels, in one line.
    pub(super) fn summary(&self) -> String {
        let levels = count(self.ladder.levels(), "level");
        let types = count(self.types, "type");
        let more = |n: usize, one| if n == 0 { String::new() } else { format!(", {}", count(n, one)) };
        let sources = more(self.sources.len(), "source");
        let schedules = more(self.schedules.len(), "schedule");
        let hatcheries = count(self.timers.len(), "hatchery");
        format!("{types}, {hatcheries}, a ladder of {levels}{sources}{schedules}")
    }

    /// Returns a line about the types that are not drawn, if there are any.
    #[must_use]
    pub fn rest(&self) -> Option<String> {
        (self.left_out > 0).then(|| format!("{} not shown; --type shows them", count(self.left_out, "type")))
    }
}

/// Merges lanes that differ only in the names of their types. The merged lane takes the place of the first.
fn grouped(lanes: Vec<Swimlane>) -> Vec<Swimlane> {
    let mut groups: Vec<Swimlane> = Vec::new();
    for mut lane in lanes {
        let types = std::mem::take(&mut lane.types);
        match groups.iter_mut().find(|group| Swimlane { types: Vec::new(), ..(*group).clone() } == lane) {
            Some(group) => group.types.extend(types),
            None => groups.push(Swimlane { types, ..lane }),
        }
    }
    groups
}

/// Returns the reasons why there is a hatchery of this TTL.
fn purposes(topology: &Topology, ttl: Ttl) -> Vec<String> {
    let mut purposes = Vec::new();
    if topology.hatcheries.contains(&ttl) {
        purposes.push(format!("--delay {ttl}"));
    }
    let windows: Vec<&str> = topology
        .types
        .iter()
        .filter(|(_, spec)| spec.coalesce.window == Some(ttl))
        .map(|(name, _)| name.as_str())
        .collect();
    match windows.as_slice() {
        [] => {}
        [one] => purposes.push(format!("window of {one}")),
        many => purposes.push(format!("window of {} types", many.len())),
    }
    if ttl == BUSY {
        purposes.push("the reference is busy".to_owned());
    }
    purposes
}

impl Swimlane {
    /// Returns the lane of a type.
    #[must_use]
    pub fn new(name: &EventType, spec: &TypeSpec) -> Self {
        Self {
            types: vec![name.clone()],
            concurrency: spec.concurrency,
            prefetch: spec.prefetch,
            timeout: spec.handler_timeout,
            coalesce: spec.coalesce,
            retries: spec.retry_queues(),
            on_failure: spec.on_failure,
            retry: spec.retry.clone(),
            has_quarantine: spec.has_quarantine(),
        }
    }

    /// Returns the type as it stands in the names of queues; `<type>` for several types.
    #[must_use]
    pub fn label(&self) -> &str {
        match self.types.as_slice() {
            [one] => one.as_str(),
            _ => "<type>",
        }
    }

    /// Returns how many types the lane stands for, and the names of the first; `None` for a single type.
    pub(super) fn members(&self) -> Option<String> {
        const NAMED: usize = 3;
        const LONGEST: usize = 24;
        let named: Vec<String> = self.types.iter().take(NAMED).map(|name| shortened(name.as_str(), LONGEST)).collect();
        let more = if self.types.len() > NAMED { ", …" } else { "" };
        (self.types.len() > 1).then(|| format!("{} types: {}{more}", self.types.len(), named.join(", ")))
    }

    /// Returns the TTLs of its retry queues in one line.
    pub(super) fn delays(&self) -> String {
        some(&self.retries)
    }

    /// Returns the failures after which an event goes to the retry queue of this TTL.
    #[must_use]
    pub fn when(&self, ttl: Ttl) -> String {
        let Retry { delays, max_attempts, .. } = &self.retry;
        // No retry follows the last failure.
        let failures = (1..*max_attempts).zip(delays).filter(|(_, delay)| **delay == ttl);
        let failures: Vec<String> = failures.map(|(failure, _)| failure.to_string()).collect();
        let repeats = delays.last() == Some(&ttl) && *max_attempts as usize > delays.len() + 1;
        match failures.as_slice() {
            [] => format!("never: {} in all", self.attempts()),
            some => {
                let failures = if some.len() == 1 { "failure" } else { "failures" };
                let later = if repeats { " and later" } else { "" };
                format!("after {failures} {}{later}", some.join(", "))
            }
        }
    }

    pub(super) fn at_a_time(&self) -> String {
        format!("{} at a time, {} each", self.concurrency, short(self.timeout))
    }

    /// Returns the name of its quarantine queue, if it has one.
    pub(super) fn quarantine(&self) -> Option<String> {
        self.has_quarantine.then(|| format!("aside.{}", self.label()))
    }

    pub(super) fn attempts(&self) -> String {
        count(self.retry.max_attempts, "attempt")
    }

    /// Describes what follows a failure; `None` if failed events go to the retry queues, as usual.
    pub(super) fn failing(&self) -> Option<String> {
        let jitter = percent(self.retry.jitter.into());
        let spread = (self.retry.jitter > 0 && !self.retry.delays.is_empty()).then(|| {
            let (delays, attempts) = (some(&self.retry.delays), self.attempts());
            format!("retries through the ladder: {delays}, jitter {jitter}; {attempts}")
        });
        match self.on_failure {
            OnFailure::Retry => spread,
            OnFailure::InPlace { tries, delay } => {
                let pause = if delay.is_zero() { String::new() } else { format!(", {} apart", short(delay)) };
                let tries = format!("{} in place{pause}", count(tries, "try"));
                Some([tries].into_iter().chain(spread).collect::<Vec<_>>().join("; "))
            }
            OnFailure::Block => {
                Some(format!("in order, each event until it works; tried again after {}", some(&self.retry.delays)))
            }
            OnFailure::Drop => Some("failed events are dropped".to_owned()),
        }
    }

    /// Describes the events in its dead-letter queue.
    pub(super) fn buried(&self) -> String {
        match self.on_failure {
            OnFailure::InPlace { tries, .. } if self.retry.delays.is_empty() => {
                format!("after {}, for people", count(tries, "try"))
            }
            OnFailure::Retry | OnFailure::InPlace { .. } => format!("after {}, for people", self.attempts()),
            OnFailure::Block | OnFailure::Drop => "events that will never work, for people".to_owned(),
        }
    }

    /// Describes how its events coalesce with others of the same reference, and the window.
    pub(super) fn coalescing(&self) -> Vec<String> {
        let immediate = match self.coalesce.immediate {
            Immediate::Off => None,
            Immediate::Latest => Some("latest"),
            Immediate::First => Some("first"),
        };
        let delayed = match self.coalesce.delayed {
            Delayed::Off => None,
            Delayed::Latest => Some("delayed latest"),
            Delayed::EachTime => Some("each time"),
        };
        let words: Vec<&str> = [immediate, delayed].into_iter().flatten().collect();
        let coalesces = (!words.is_empty()).then(|| format!("coalesces: {}", words.join(", ")));
        coalesces.into_iter().chain(self.coalesce.window.map(|window| format!("window {window}"))).collect()
    }
}

/// Joins TTLs in one line; of very many only some are shown.
fn some<'t>(ttls: impl IntoIterator<Item = &'t Ttl>) -> String {
    const MOST: usize = 7;
    let mut ttls: Vec<String> = ttls.into_iter().map(ToString::to_string).collect();
    if ttls.len() > MOST {
        ttls.splice(MOST - 2..ttls.len() - 1, ["…".to_owned()]);
    }
    ttls.join(" · ")
}

/// Formats a duration in the largest unit that divides it.
fn short(duration: Duration) -> String {
    Ttl::new(duration).map_or_else(|_| format!("{duration:?}"), |ttl| ttl.to_string())
}

/// Returns the longest delay that a ladder takes at once, rounded down to the largest unit.
pub(super) fn longest(ladder: Ladder) -> String {
    let millis = u128::from(ladder.resolution().as_millis()) * ((1 << u128::from(ladder.levels())) - 1);
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let (unit, name) = units.into_iter().find(|(unit, _)| millis >= *unit).unwrap_or((1, "ms"));
    format!("{}{name}", millis / unit)
}

/// Shortens a name to this many characters by cutting out its middle.
pub(super) fn shortened(name: &str, most: usize) -> String {
    let length = name.chars().count();
    if length <= most {
        return name.to_owned();
    }
    let tail = (most.saturating_sub(1)) / 2;
    let head = most.saturating_sub(1 + tail);
    let start: String = name.chars().take(head).collect();
    let end: String = name.chars().skip(length - tail).collect();
    format!("{start}…{end}")
}

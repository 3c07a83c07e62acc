//! The settings of `topology.yaml`, checked and complete: every default is filled in, and every name is valid.
//!
//! [`crate::file`] reads the text.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    breaker::BreakerSpec,
    delay::Ladder,
    life_cycle::LifeCycle,
    register::Terms,
    schedule::definition::Definition,
    source::SourceSpec,
    switches::{Name, Paused},
    ttl::Ttl,
    words::{EventType, Word},
};

/// A whole topology, as [`read_file`](crate::read_file) reads it: every default is filled in.
///
/// Reading it changes nothing on the broker; `topology apply` does.
///
/// A program may rely on the [`name`](Self::name) and on the names of the [`types`](Self::types). The other fields, and
/// their types in [`domain::spec`](crate::domain::spec), follow the keys of the file and may change in any release.
///
/// ```
/// let topology = hatchery::read_file("topology.yaml")?;
/// let types: Vec<&str> = topology.types.keys().map(|name| name.as_str()).collect();
/// assert_eq!((topology.name.as_str(), types), ("billing", vec!["hr-import", "mail"]));
/// # Ok::<(), hatchery::ReadError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// The first word of every object's name on the broker, and the owner written on it.
    pub name: Word,
    /// The former names of the topology, the oldest first.
    pub renamed_from: Vec<Word>,
    /// Existing exchanges and queues that the topology takes over although they have no label.
    pub adopt: BTreeSet<String>,
    /// The reason why the file pauses all types and sources; empty if it gives none. Workers follow the stream with the switches, not this.
    pub paused: Option<String>,
    /// The type of every queue.
    pub queue_type: QueueType,
    /// The named timers (`hatcheries`), in the order of the file, each once.
    pub hatcheries: Vec<Ttl>,
    /// The timer for every other delay.
    pub ladder: Ladder,
    /// The settings of the register: its keys, and how long they last.
    pub redis: RedisSpec,
    /// How long the broker waits for an acknowledgement (RabbitMQ's `consumer_timeout`).
    pub ack_timeout: Duration,
    /// The largest payload that is published, in bytes.
    pub max_payload: usize,
    /// The stream that is told what happens to events.
    pub life_cycle: LifeCycle,
    /// The event types by name.
    pub types: BTreeMap<EventType, TypeSpec>,
    /// The schedules by name.
    pub schedules: BTreeMap<Word, Definition>,
    /// The queues of foreign messages that become events, by name.
    pub sources: BTreeMap<Word, SourceSpec>,
    /// The type whose events tell of a breaker that opens.
    pub notify: Option<EventType>,
}

/// The type of every queue on the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueType {
    /// Quorum queues: replicated, and dead-lettered at least once. The guarantees rest on both.
    Quorum,
    /// Classic queues: on one node, and dead-lettered at most once.
    Classic,
}

impl QueueType {
    /// Returns the name that RabbitMQ and the file use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quorum => "quorum",
            Self::Classic => "classic",
        }
    }

    /// Returns the guarantees that this type of queue gives up, a sentence each.
    #[must_use]
    pub const fn gives_up(self) -> &'static [&'static str] {
        match self {
            Self::Quorum => &[],
            Self::Classic => &[
                "nothing is replicated: a queue's events are on one node, unavailable while it is down and lost with its disk",
                "RabbitMQ moves events from one queue to the next at most once: an event that moves while a node fails may \
                 be lost",
                "RabbitMQ counts no crashes: it redelivers a message that kills its workers before the claim until \
                 somebody removes the message",
            ],
        }
    }
}

/// The settings of the register, the key `redis` of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSpec {
    /// The first part of every key.
    pub prefix: String,
    /// The number of hash slots over which the keys are spread, at least 1.
    pub shards: u16,
    /// How long the register keeps a finished event, so that a redelivery is dropped.
    pub dedup_retention: Duration,
    /// How long the register keeps an event that has not finished, counted from its due time.
    pub backlog_retention: Duration,
}

/// One event type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeSpec {
    /// The former names of the type, the oldest first.
    pub renamed_from: Vec<EventType>,
    /// The reason why the file pauses the type; empty if it gives none. Workers follow the stream with the switches, not this.
    pub paused: Option<String>,
    /// The most deliveries that a worker holds.
    pub prefetch: u16,
    /// The most handlers that a worker runs at a time.
    pub concurrency: u16,
    /// The longest time that one run of the handler may take.
    pub handler_timeout: Duration,
    /// How long a stopping worker waits for its running handlers.
    pub drain_timeout: Duration,
    /// The events of one reference that become one run.
    pub coalesce: Coalesce,
    /// The strategy for failures.
    pub on_failure: OnFailure,
    /// The delays and the number of attempts.
    pub retry: Retry,
    /// The fate of an event that expires before it starts.
    pub on_expiry: OnExpiry,
    /// The number of deaths of its worker after which an event goes to dead-letter, at least 3. From its third start on
    /// the event runs alone.
    pub crash_limit: u32,
    /// Whether the register tells which events are stale. Without it every copy runs, and the type needs no Redis.
    pub register: bool,
    /// Whether all workers together handle only one event of a reference at a time.
    pub exclusive: bool,
    /// How long a claim lasts without being renewed. A worker renews it after each third of this time.
    pub lease: Duration,
    /// The circuit breaker, if the type has one.
    pub breaker: Option<BreakerSpec>,
    /// The largest payload that the register keeps, in bytes. `None` if it keeps none.
    pub keep_payload: Option<usize>,
}

/// Coalescing, a choice for each of the two kinds of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesce {
    /// Events that are due at once.
    pub immediate: Immediate,
    /// Events with a date.
    pub delayed: Delayed,
    /// How long the first immediate event of a burst waits for others.
    pub window: Option<Ttl>,
    /// The longest time that a stream of newer events may postpone the run of a reference.
    pub max_wait: Duration,
}

impl Coalesce {
    /// Tells whether the type coalesces any events. If so, publishing asks the register for versions.
    #[must_use]
    pub fn any(&self) -> bool {
        self.immediate != Immediate::Off || self.delayed != Delayed::Off
    }
}

/// How events that are due at once are coalesced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immediate {
    /// Every event runs.
    Off,
    /// A newer event replaces an older one.
    Latest,
    /// One run serves all events that were published before it begins.
    First,
}

/// How events with a date are coalesced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delayed {
    /// Every event runs.
    Off,
    /// A newer event replaces an older one, whatever their dates.
    Latest,
    /// A newer event replaces an older one of the same date. Events with two dates both run; a repeated event runs
    /// once.
    EachTime,
}

/// The strategy for an event whose run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The event runs again later. After the last attempt it goes to the dead-letter queue.
    Retry,
    /// Its worker runs the event again a few times, and then the event is treated as with `Retry`.
    InPlace {
        /// The tries in a row, the first one included; at least 1.
        tries: u32,
        /// The pause between two tries.
        delay: Duration,
    },
    /// The event runs until it succeeds, and no other event of its type runs before.
    Block,
    /// The failure is logged and counted, and the event is acknowledged.
    Drop,
}

/// The fate of an event that expires before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExpiry {
    /// The event goes to the dead-letter queue.
    DeadLetter,
    /// The event is acknowledged, and gone.
    Discard,
}

/// The delays between attempts, and the number of attempts before the dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The delay after the first failure, the second, and so on; the last one repeats. The list is empty only in types
    /// with `in-place` and no `retry` in the file. Such types have no retry queues.
    pub delays: Vec<Ttl>,
    /// The number of attempts, the first run included; at least 1. Types with `block` ignore it.
    pub max_attempts: u32,
    /// The most that jitter adds to a delay, in thousandths of the delay.
    pub jitter: u16,
}

impl Topology {
    /// Returns what the file pauses, with the reasons.
    pub fn pauses(&self) -> impl Iterator<Item = (Paused, String)> {
        let all = self.paused.iter().map(|reason| (Paused::All, reason.clone()));
        let types =
            self.types.iter().filter_map(|(name, spec)| Some((Paused::Type(Name(name.clone())), spec.paused.clone()?)));
        let sources = self
            .sources
            .iter()
            .filter_map(|(name, spec)| Some((Paused::Source(Name(name.clone())), spec.paused.clone()?)));
        let schedules = self
            .schedules
            .iter()
            .filter_map(|(name, spec)| Some((Paused::Schedule(Name(name.clone())), spec.paused.clone()?)));
        all.chain(types).chain(sources).chain(schedules)
    }

    /// Returns the types that have a quarantine queue.
    pub fn with_quarantine(&self) -> impl Iterator<Item = (&EventType, &TypeSpec)> {
        self.types.iter().filter(|(_, spec)| spec.has_quarantine())
    }

    /// Returns the time after the settlement of a run during which its event may be delivered again, because RabbitMQ
    /// never got the acknowledgement. It is a minute longer than the acknowledgement timeout, because RabbitMQ checks
    /// once a minute.
    #[must_use]
    pub fn latest_redelivery(&self) -> Duration {
        self.ack_timeout.saturating_add(Duration::from_mins(1))
    }

    /// Returns the types whose finished events the register forgets before the [latest
    /// redelivery](Self::latest_redelivery), with the time for which it keeps them.
    pub fn forgetting_too_soon(&self) -> impl Iterator<Item = (&EventType, Duration)> {
        let registered = self.types.iter().filter(|(_, spec)| spec.register);
        let remembered = registered.map(|(name, spec)| (name, spec.terms(&self.redis).dedup_retention));
        remembered.filter(|(_, remembered)| *remembered < self.latest_redelivery())
    }

    /// Returns the topology's oldest name, which its keys in Redis have. So a renamed topology finds the keys of the
    /// events under way.
    #[must_use]
    pub fn first_name(&self) -> &Word {
        self.renamed_from.first().unwrap_or(&self.name)
    }

    /// Returns the oldest name of each type that was renamed, by its present name.
    #[must_use]
    pub fn first_names(&self) -> BTreeMap<EventType, EventType> {
        let renamed =
            self.types.iter().filter_map(|(now, spec)| Some((now.clone(), spec.renamed_from.first()?.clone())));
        renamed.collect()
    }
}

impl Retry {
    /// Returns the longest delay between two attempts, with the most jitter.
    #[must_use]
    pub fn longest(&self) -> Duration {
        let longest = self.delays.iter().map(|ttl| ttl.as_duration()).max().unwrap_or_default();
        longest + longest * self.jitter.into() / 1_000
    }
}

impl TypeSpec {
    /// Tells whether the events of this type are handled one after the other, in the order of the queue.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        self.on_failure == OnFailure::Block
    }

    /// Tells whether events that may have killed their worker are published to a quarantine queue, to run there alone.
    /// Types with the register need none, because the claims tell which events ran. Types that keep order must not have
    /// one, because later events would overtake.
    #[must_use]
    pub fn has_quarantine(&self) -> bool {
        !self.register && !self.keeps_order()
    }

    /// Returns the oldest name of this type, whose present name is given.
    #[must_use]
    pub fn first_name<'a>(&'a self, name: &'a EventType) -> &'a EventType {
        self.renamed_from.first().unwrap_or(name)
    }

    /// Returns the most handlers that a worker runs at a time, if it was started with the concurrency `instead` of the
    /// file's. A type that keeps order ignores `instead`.
    #[must_use]
    pub fn concurrency_for(&self, instead: Option<u16>) -> u16 {
        instead.filter(|_| !self.keeps_order()).unwrap_or(self.concurrency)
    }

    /// Returns the prefetch for another concurrency than the file's. It changes in proportion, so that a prefetched
    /// event waits for as many runs as before.
    #[must_use]
    pub fn prefetch_for(&self, concurrency: u16) -> u16 {
        let prefetch = u64::from(self.prefetch) * u64::from(concurrency) / u64::from(self.concurrency.max(1));
        u16::try_from(prefetch).unwrap_or(u16::MAX).max(concurrency)
    }

    /// Returns the delays at the end of the list that no event comes to, because its failures before them are
    /// `max-attempts` already.
    #[must_use]
    pub fn unreached_delays(&self) -> &[Ttl] {
        let retries = usize::try_from(self.retry.max_attempts.saturating_sub(1)).unwrap_or(usize::MAX);
        match self.on_failure {
            OnFailure::Retry | OnFailure::InPlace { .. } => self.retry.delays.get(retries..).unwrap_or_default(),
            // `block` tries without end, and `drop` never again.
            OnFailure::Block | OnFailure::Drop => &[],
        }
    }

    /// Returns the TTLs of the type's retry queues. The set is empty if no failure goes through a retry queue.
    #[must_use]
    pub fn retry_queues(&self) -> BTreeSet<Ttl> {
        match self.on_failure {
            // A queue has one TTL, so delays with jitter go through the ladder.
            OnFailure::Retry | OnFailure::InPlace { .. } if self.retry.jitter == 0 => {
                self.retry.delays.iter().copied().collect()
            }
            // With `block` the worker holds the delivery during the delay.
            OnFailure::Retry | OnFailure::InPlace { .. } | OnFailure::Block | OnFailure::Drop => BTreeSet::new(),
        }
    }

    /// Returns the settings of this type that the register's calls need.
    #[must_use]
    pub fn terms(&self, redis: &RedisSpec) -> Terms {
        let longest = self.retry.longest();
        Terms {
            exclusive: self.exclusive,
            lease: self.lease,
            // If the settle call of a run was lost, its follow-up must still find the state that the run left.
            dedup_retention: redis.dedup_retention.max(longest * 2),
            max_wait: self.coalesce.max_wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    #[rstest]
    #[case(200, 16, 16, 200)]
    #[case(200, 16, 1, 12)]
    #[case(200, 16, 32, 400)]
    #[case(10, 10, 1, 1)]
    #[case(1, 1, 50, 50)]
    #[case(60_000, 2, 10, 65_535)]
    fn the_prefetch_follows_the_concurrency(
        #[case] prefetch: u16,
        #[case] concurrency: u16,
        #[case] instead: u16,
        #[case] expected: u16,
    ) {
        let file = format!(
            "version: 1\nname: t\ntypes: {{ mail: {{ prefetch: {prefetch}, concurrency: {concurrency}, handler-timeout: 10ms }} }}"
        );
        let topology = crate::file::read(&file, "topology.yaml").expect("a valid file");
        assert_eq!(topology.types["mail"].prefetch_for(instead), expected);
    }
}

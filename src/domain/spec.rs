//! What `topology.yaml` says, checked and complete: every default is filled in, every name is valid.
//!
//! Reading the text is [`crate::file`]'s part.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    delay::Ladder,
    register::Terms,
    ttl::Ttl,
    words::{EventType, Word},
};

/// A whole topology, as [`read_file`](crate::read_file) reads it: every default is filled in.
///
/// Nothing here changes the broker; `topology apply` does.
///
/// A program asks it for its [`name`](Self::name) and for the names of its [`types`](Self::types). What else the fields
/// are made of is in [`domain::spec`](crate::domain::spec), grows with the file's keys, and is not part of what can be
/// relied on.
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
    /// The names that it had before, the oldest first.
    pub renamed_from: Vec<Word>,
    /// Exchanges and queues of others that it takes over.
    pub adopt: BTreeSet<String>,
    /// The type of every queue.
    pub queue_type: QueueType,
    /// The named timers (`hatcheries`), in the order of the file, each once.
    pub hatcheries: Vec<Ttl>,
    /// The timer for every other delay.
    pub ladder: Ladder,
    /// Where and for how long the register remembers.
    pub redis: RedisSpec,
    /// How long the broker waits for an acknowledgement (RabbitMQ's `consumer_timeout`).
    pub ack_timeout: Duration,
    /// The largest payload that is published, in bytes.
    pub max_payload: usize,
    /// The event types by name.
    pub types: BTreeMap<EventType, TypeSpec>,
}

/// The type of every queue on the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueType {
    /// Replicated, and dead-lettered at least once: what the promise rests on.
    Quorum,
    /// On one node, and dead-lettered at most once.
    Classic,
}

impl QueueType {
    /// As RabbitMQ and the file call it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quorum => "quorum",
            Self::Classic => "classic",
        }
    }

    /// What it gives up of the promise, a sentence each.
    #[must_use]
    pub const fn gives_up(self) -> &'static [&'static str] {
        match self {
            Self::Quorum => &[],
            Self::Classic => &[
                "nothing is replicated: the events of a queue are on one node, away while it is down and lost with its disk",
                "RabbitMQ moves events from one queue to the next at most once: what is on its way when a node fails may be \
                 lost",
                "RabbitMQ counts no crashes: a message that breaks off every worker before the register knows of it comes \
                 again until somebody removes it",
            ],
        }
    }
}

/// The register's part of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSpec {
    /// The first part of every key.
    pub prefix: String,
    /// How many hash slots the keys are spread over, at least 1.
    pub shards: u16,
    /// How long what has finished is remembered, so that a redelivery is dropped.
    pub dedup_retention: Duration,
    /// How long what is still open is remembered beyond its due time.
    pub backlog_retention: Duration,
}

/// One event type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeSpec {
    /// The names that it had before, the oldest first.
    pub renamed_from: Vec<EventType>,
    /// Deliveries that a worker holds at most.
    pub prefetch: u16,
    /// Handlers that a worker runs at most at a time.
    pub concurrency: u16,
    /// How long one run of the handler may take.
    pub handler_timeout: Duration,
    /// How long a stopping worker waits for the handlers that run.
    pub drain_timeout: Duration,
    /// Which events of one reference stand for each other.
    pub coalesce: Coalesce,
    /// The strategy for failures.
    pub on_failure: OnFailure,
    /// When a failed event is tried again.
    pub retry: Retry,
    /// Deaths of its worker before an event is put aside, at least 3: it runs by itself from the third start on.
    pub crash_limit: u32,
    /// Redis says which of its events are stale. Without it every copy runs, and nothing of Redis is needed.
    pub register: bool,
    /// One event of a reference is handled at a time, in all workers together.
    pub exclusive: bool,
    /// How long a claim lasts unless it is renewed (every third of it).
    pub lease: Duration,
    /// The largest payload that the register keeps, in bytes; none where it keeps none.
    pub keep_payload: Option<usize>,
}

/// Coalescing, a choice for each of the two kinds of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesce {
    /// Events that are due at once.
    pub immediate: Immediate,
    /// Events with a date.
    pub delayed: Delayed,
    /// How long an immediate event waits for company.
    pub window: Option<Ttl>,
    /// How long a stream of changes that never pauses may put its reference off.
    pub max_wait: Duration,
}

impl Coalesce {
    /// Whether any event may stand for another, so that publishing asks for versions.
    #[must_use]
    pub fn any(&self) -> bool {
        self.immediate != Immediate::Off || self.delayed != Delayed::Off
    }
}

/// How events that are due at once stand for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immediate {
    /// Every event runs.
    Off,
    /// A newer one replaces the older.
    Latest,
    /// One run serves everything that was published before it begins.
    First,
}

/// How events with a date stand for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delayed {
    /// Every event runs.
    Off,
    /// A newer one replaces the older, whatever their dates.
    Latest,
    /// A newer one replaces the older of the same date: two dated changes both happen, a repeated one does not.
    EachTime,
}

/// What follows a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The event is tried again later, and in the end it is put into the dead-letter queue.
    Retry,
    /// It is tried again at once in the same worker, a few times; then as with `Retry`.
    InPlace {
        /// Tries in a row, the first one included; at least 1.
        tries: u32,
        /// The pause between two of them.
        delay: Duration,
    },
    /// It is tried until it works, and no other of its type runs before it.
    Block,
    /// It is logged, counted and acknowledged.
    Drop,
}

/// A delay for each attempt, then the dead-letter queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The delay after the first failure, the second, …; the last one repeats. Empty only in types that fail in place and say
    /// nothing of `retry`: they have no retry queues.
    pub delays: Vec<Ttl>,
    /// How often an event is tried in all, the first run included; at least 1. Types that block try without end.
    pub max_attempts: u32,
    /// How much longer than its delay an event may wait, in thousandths of the delay.
    pub jitter: u16,
}

impl Topology {
    /// The types that have an aside queue.
    pub fn putting_aside(&self) -> impl Iterator<Item = (&EventType, &TypeSpec)> {
        self.types.iter().filter(|(_, spec)| spec.puts_aside())
    }

    /// So long after a run was settled its event may be delivered again, where RabbitMQ never got the acknowledgement. It looks
    /// once a minute.
    #[must_use]
    pub fn latest_redelivery(&self) -> Duration {
        self.ack_timeout.saturating_add(Duration::from_mins(1))
    }

    /// The types that may have forgotten by then that an event was handled, and for how long they remember it.
    pub fn forgetting_too_soon(&self) -> impl Iterator<Item = (&EventType, Duration)> {
        let registered = self.types.iter().filter(|(_, spec)| spec.register);
        let remembered = registered.map(|(name, spec)| (name, spec.terms(&self.redis).dedup_retention));
        remembered.filter(|(_, remembered)| *remembered < self.latest_redelivery())
    }

    /// The name that its keys in Redis have: the first one, so that a new name finds the marks of what is under way.
    #[must_use]
    pub fn first_name(&self) -> &Word {
        self.renamed_from.first().unwrap_or(&self.name)
    }

    /// The first name of each type that has another one now.
    #[must_use]
    pub fn first_names(&self) -> BTreeMap<EventType, EventType> {
        let renamed =
            self.types.iter().filter_map(|(now, spec)| Some((now.clone(), spec.renamed_from.first()?.clone())));
        renamed.collect()
    }
}

impl Retry {
    /// The longest delay of all.
    #[must_use]
    pub fn longest(&self) -> Duration {
        let longest = self.delays.iter().map(|ttl| ttl.as_duration()).max().unwrap_or_default();
        longest + longest * self.jitter.into() / 1_000
    }
}

impl TypeSpec {
    /// Whether its events are handled one after the other, in the order of its queue.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        self.on_failure == OnFailure::Block
    }

    /// Whether what may have killed its worker is published to an aside queue, to run there by itself. With the register the
    /// claims tell who it was, and what keeps order is never put aside.
    #[must_use]
    pub fn puts_aside(&self) -> bool {
        !self.register && !self.keeps_order()
    }

    /// The handlers that a worker runs where it was told another concurrency than the file's. One stays one where order is
    /// kept.
    #[must_use]
    pub fn concurrency_for(&self, instead: Option<u16>) -> u16 {
        instead.filter(|_| !self.keeps_order()).unwrap_or(self.concurrency)
    }

    /// The prefetch for another concurrency than the file's: in proportion, so that as many runs as before come one after
    /// the other.
    #[must_use]
    pub fn prefetch_for(&self, concurrency: u16) -> u16 {
        let prefetch = u64::from(self.prefetch) * u64::from(concurrency) / u64::from(self.concurrency.max(1));
        u16::try_from(prefetch).unwrap_or(u16::MAX).max(concurrency)
    }

    /// The TTLs of its retry queues, each once; none where no failure is ever retried through one.
    #[must_use]
    pub fn retry_queues(&self) -> BTreeSet<Ttl> {
        match self.on_failure {
            // One queue has one TTL: delays that vary go through the ladder.
            OnFailure::Retry | OnFailure::InPlace { .. } if self.retry.jitter == 0 => {
                self.retry.delays.iter().copied().collect()
            }
            // Who blocks waits with the delivery in hand.
            OnFailure::Retry | OnFailure::InPlace { .. } | OnFailure::Block | OnFailure::Drop => BTreeSet::new(),
        }
    }

    /// What this type's entry means for the register.
    #[must_use]
    pub fn terms(&self, redis: &RedisSpec) -> Terms {
        let longest = self.retry.longest();
        Terms {
            exclusive: self.exclusive,
            lease: self.lease,
            // A follow-up whose settle was lost must find the mark of the run that it follows.
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

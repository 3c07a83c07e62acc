//! Every key of the file, one table for each level. The reader and the schema both use the tables.
//!
//! To add a key, add its name and its row here, and read it in [`super::assemble`].

use std::time::Duration;

use super::{
    field::{Field, Words, field},
    section::{Name, Named, Rules, Section, Timer},
    table::{
        Absent::{Depends, Required, Value},
        Level, Short,
    },
};
use crate::domain::{
    schedule::rule::{CatchUp, Mode, OnScheduleFailure, Overlap},
    source::{Condition, Pointer, ReferenceFrom, Unmatched},
    spec::{Delayed, Immediate, QueueType},
    ttl::LONGEST,
};

const INSTANT: Duration = Duration::ZERO;
const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_hours(24);

/// RabbitMQ's prefetch count has 16 bits.
const MOST_PREFETCH: u64 = 65_535;
/// The number of slots of a Redis cluster.
const MOST_SHARDS: u64 = 16_384;
/// RabbitMQ's default `max_message_size` since 4.0.
const MOST_PAYLOAD: u64 = 16 << 20;
/// Redis holds kept payloads in memory.
const MOST_KEPT: u64 = 64 << 10;
/// Guards against typing errors. Nobody waits for more tries.
const MOST_TRIES: u64 = 1_000_000;

// The name of each key, and the type of its value.
pub(super) const VERSION: Field<u64> = field("version");
pub(super) const NAME: Field<str> = field("name");
pub(super) const QUEUE_TYPE: Field<QueueType> = field("queue-type");
pub(super) const HATCHERIES: Field<[Timer]> = field("hatcheries");
pub(super) const LADDER: Field<Section> = field("ladder");
pub(super) const REDIS: Field<Section> = field("redis");
pub(super) const ACK_TIMEOUT: Field<Duration> = field("ack-timeout");
pub(super) const MAX_PAYLOAD: Field<u64> = field("max-payload");
pub(super) const DEFAULTS: Field<Section> = field("defaults");
pub(super) const TYPES: Field<[Named]> = field("types");
pub(super) const ADOPT: Field<[Name]> = field("adopt");
pub(super) const RENAMED_FROM: Field<[Name]> = field("renamed-from");
pub(super) const RESOLUTION: Field<Duration> = field("resolution");
pub(super) const HORIZON: Field<Duration> = field("horizon");
pub(super) const PREFIX: Field<str> = field("prefix");
pub(super) const SHARDS: Field<u64> = field("shards");
pub(super) const DEDUP_RETENTION: Field<Duration> = field("dedup-retention");
pub(super) const BACKLOG_RETENTION: Field<Duration> = field("backlog-retention");
pub(super) const PREFETCH: Field<u64> = field("prefetch");
pub(super) const CONCURRENCY: Field<u64> = field("concurrency");
pub(super) const HANDLER_TIMEOUT: Field<Duration> = field("handler-timeout");
pub(super) const DRAIN_TIMEOUT: Field<Duration> = field("drain-timeout");
pub(super) const COALESCE: Field<Section> = field("coalesce");
pub(super) const RETRY: Field<Section> = field("retry");
pub(super) const ON_FAILURE: Field<FailureWord> = field("on-failure");
pub(super) const CRASH_LIMIT: Field<u64> = field("crash-limit");
pub(super) const EXCLUSIVE: Field<bool> = field("exclusive");
pub(super) const LEASE: Field<Duration> = field("lease");
pub(super) const REGISTER: Field<RegisterWord> = field("register");
pub(super) const KEEP_PAYLOAD: Field<u64> = field("keep-payload");
pub(super) const IN_PLACE: Field<Section> = field("in-place");
pub(super) const IMMEDIATE: Field<Immediate> = field("immediate");
pub(super) const DELAYED: Field<Delayed> = field("delayed");
pub(super) const WINDOW: Field<Duration> = field("window");
pub(super) const MAX_WAIT: Field<Duration> = field("max-wait");
pub(super) const DELAYS: Field<[Timer]> = field("delays");
pub(super) const MAX_ATTEMPTS: Field<u64> = field("max-attempts");
pub(super) const JITTER: Field<u64> = field("jitter");
pub(super) const TRIES: Field<u64> = field("tries");
pub(super) const DELAY: Field<Duration> = field("delay");
pub(super) const SCHEDULES: Field<[Named]> = field("schedules");
pub(super) const CRON: Field<str> = field("cron");
pub(super) const EVERY: Field<Duration> = field("every");
pub(super) const MODE: Field<Mode> = field("mode");
pub(super) const SPREAD: Field<Duration> = field("jitter");
pub(super) const REFERENCE_TEXT: Field<str> = field("reference");
pub(super) const TEMPLATE: Field<serde_json::Value> = field("payload");
pub(super) const OVERLAP: Field<Overlap> = field("overlap");
pub(super) const CATCH_UP: Field<CatchUp> = field("catch-up");
pub(super) const ON_SCHEDULE_FAILURE: Field<OnScheduleFailure> = field("on-failure");
pub(super) const SOURCES: Field<[Named]> = field("sources");
pub(super) const QUEUE: Field<str> = field("queue");
pub(super) const DECLARE: Field<bool> = field("declare");
pub(super) const ORDERED: Field<bool> = field("ordered");
pub(super) const TIMEZONE: Field<jiff::tz::TimeZone> = field("timezone");
pub(super) const ID: Field<Pointer> = field("id");
pub(super) const UNMATCHED: Field<Unmatched> = field("unmatched");
pub(super) const EVENTS: Field<Rules> = field("events");
pub(super) const WHEN: Field<[Condition]> = field("when");
pub(super) const RULE_TYPE: Field<str> = field("type");
pub(super) const REFERENCE: Field<ReferenceFrom> = field("reference");
pub(super) const NBF: Field<Pointer> = field("nbf");
pub(super) const PAYLOAD: Field<Pointer> = field("payload");

pub(super) static TOP: Level = Level {
    name: "the file",
    keys: &[
        VERSION.version(Required, "The version of this format."),
        NAME.word(Required, "The first word of every object's name on the broker."),
        QUEUE_TYPE.choice(Value("quorum"), "The type of every queue."),
        HATCHERIES.ttls(true, Value("[]"), "Named timers, one queue each."),
        LADDER.section(&LADDER_LEVEL, Value("{}"), "The timer for every other delay."),
        REDIS.section(&REDIS_LEVEL, Value("{}"), "The register's keys, and how long they live."),
        ACK_TIMEOUT.duration(
            MILLI,
            LONGEST,
            Value("30m"),
            "How long the broker waits for an acknowledgement (its consumer_timeout).",
        ),
        MAX_PAYLOAD.bytes(MOST_PAYLOAD, Value("16MiB"), "The largest payload that is published."),
        DEFAULTS.section(&TYPE, Value("{}"), "What every type says unless it says otherwise."),
        TYPES.types(&TYPE, Required, "The event types by name."),
        ADOPT.objects(Value("[]"), "Existing exchanges and queues to take over, by name."),
        RENAMED_FROM.names(Value("[]"), "The name that this topology had before, or a list, oldest first."),
        SCHEDULES.schedules(&SCHEDULE_LEVEL, Value("{}"), "Periodic events, by name."),
        SOURCES.sources(&SOURCE_LEVEL, Value("{}"), "Queues of foreign messages that become events, by name."),
    ],
};

pub(super) static LADDER_LEVEL: Level = Level {
    name: "`ladder`",
    keys: &[
        RESOLUTION.duration(MILLI, LONGEST, Value("250ms"), "One step: no event is further behind its time."),
        HORIZON.duration(MILLI, LONGEST, Value("365d"), "The ladder makes at least this delay in one round."),
    ],
};

pub(super) static REDIS_LEVEL: Level = Level {
    name: "`redis`",
    keys: &[
        PREFIX.prefix(Value("hatchery"), "The first part of every key."),
        SHARDS.whole(1, MOST_SHARDS, Value("1"), "Hash slots that the keys are spread over."),
        DEDUP_RETENTION.duration(
            MILLI,
            LONGEST,
            Value("1h"),
            "How long a finished event is remembered, so that its redelivery is dropped.",
        ),
        BACKLOG_RETENTION.duration(
            MILLI,
            LONGEST,
            Value("7d"),
            "How long an open event is remembered beyond its due time.",
        ),
    ],
};

pub(super) static TYPE: Level = Level {
    name: "a type",
    keys: &[
        PREFETCH.whole(
            1,
            MOST_PREFETCH,
            Value("100"),
            "Deliveries that a worker holds at most (10 for `block`, a part for `in-place`).",
        ),
        CONCURRENCY.whole(1, MOST_PREFETCH, Value("10"), "Handlers that a worker runs at a time (1 for `block`)."),
        HANDLER_TIMEOUT.duration(MILLI, LONGEST, Value("1m"), "How long one run of the handler may take."),
        DRAIN_TIMEOUT.duration(
            INSTANT,
            LONGEST,
            Value("25s"),
            "How long a stopping worker waits for what runs (Kubernetes kills at 30s).",
        ),
        COALESCE.short(
            &COALESCE_LEVEL,
            COALESCE_SHORT,
            Value("off"),
            "Which events of one reference stand for each other.",
        ),
        RETRY.section(&RETRY_LEVEL, Value("{}"), "When a failed event is tried again."),
        ON_FAILURE.choice(Value("retry"), "What follows a failure."),
        // After two deaths every event that ran in the process is suspected. Only the third run is alone.
        CRASH_LIMIT.whole(
            3,
            MOST_TRIES,
            Value("5"),
            "The number of crashes of its worker after which an event goes to dead-letter.",
        ),
        EXCLUSIVE.switch(
            Depends("on where anything coalesces"),
            "One event of a reference at a time, in all workers together.",
        ),
        LEASE.duration(
            Duration::from_millis(100),
            DAY,
            Value("15s"),
            "How long a claim lasts unless it is renewed (every third of it).",
        ),
        REGISTER.choice(
            Value("on"),
            "Whether Redis says which events are stale; off: no Redis is needed, and every copy runs.",
        ),
        KEEP_PAYLOAD.size(
            MOST_KEPT,
            Value("off"),
            "The largest payload that the register keeps, so that a waiting event can be run now or put off by hand.",
        ),
        IN_PLACE.section(&IN_PLACE_LEVEL, Value("{}"), "Quick tries inside the worker, for `on-failure: in-place`."),
        RENAMED_FROM.names(Value("[]"), "The name that this type had before, or a list, oldest first."),
    ],
};

pub(super) static COALESCE_LEVEL: Level = Level {
    name: "`coalesce`",
    keys: &[
        IMMEDIATE.choice(Value("off"), "How events that are due at once stand for each other."),
        DELAYED.choice(Value("off"), "How events with a date stand for each other."),
        WINDOW.duration(MILLI, LONGEST, Depends("none"), "How long an immediate event waits for company."),
        MAX_WAIT.duration(
            MILLI,
            LONGEST,
            Depends("10 windows, 30s without one"),
            "How long a stream of changes that never pauses may put its reference off.",
        ),
    ],
};

/// The short forms of `coalesce`.
static COALESCE_SHORT: &[Short] = &[
    Short { word: "off", means: &[(IMMEDIATE.name, "off"), (DELAYED.name, "off")] },
    Short { word: "latest", means: &[(IMMEDIATE.name, "latest"), (DELAYED.name, "each-time")] },
    Short { word: "first", means: &[(IMMEDIATE.name, "first"), (DELAYED.name, "each-time")] },
];

pub(super) static RETRY_LEVEL: Level = Level {
    name: "`retry`",
    keys: &[
        DELAYS.ttls(false, Value("[10s, 1m, 10m]"), "After the first failure, the second, …; the last one repeats."),
        MAX_ATTEMPTS.whole(1, MOST_TRIES, Value("6"), "Tries in all, the first run included."),
        JITTER.share(Value("0"), "How much longer a delay may be, by chance: a part of it, like 20%."),
    ],
};

pub(super) static IN_PLACE_LEVEL: Level = Level {
    name: "`in-place`",
    keys: &[
        TRIES.whole(1, MOST_TRIES, Value("3"), "Tries in a row, the first one included."),
        DELAY.duration(INSTANT, DAY, Value("200ms"), "The pause between two tries."),
    ],
};

pub(super) static SCHEDULE_LEVEL: Level = Level {
    name: "a schedule",
    keys: &[
        RULE_TYPE.word(Required, "The type of the events."),
        CRON.cron(
            Depends("none; without it `every`"),
            "When the events are due: a cron expression of five or six fields.",
        ),
        EVERY.duration(SECOND, LONGEST, Depends("none; without it `cron`"), "The interval of the events."),
        TIMEZONE.zone(Value("UTC"), "The time zone of `cron`."),
        MODE.choice(
            Depends("fixed with `cron`, sequential with `every`"),
            "What the next instant is counted from: the definition alone, or the end of the run before.",
        ),
        SPREAD.duration(INSTANT, DAY, Value("0s"), "How much later than its instant an event may be due, by chance."),
        REFERENCE_TEXT.reference_text(Depends("none"), "The object that the events are about."),
        TEMPLATE.json(Value("{}"), "The payload of the events, any JSON."),
        OVERLAP.choice(Value("queue"), "What happens at an instant at which the run before has not ended."),
        CATCH_UP.choice(Value("last"), "Which of the instants run that passed while no worker ran."),
        ON_SCHEDULE_FAILURE.choice(Value("continue"), "What follows when an event goes to dead-letter."),
    ],
};

pub(super) static SOURCE_LEVEL: Level = Level {
    name: "a source",
    keys: &[
        QUEUE.object(Depends("none; without it `declare`"), "The queue of somebody else that the messages come from."),
        DECLARE.switch(
            Value("off"),
            "Whether `apply` declares the queue, `<name>.source.<source>`. It keeps the order of arrival.",
        ),
        ORDERED.switch(
            Depends("off; on with `declare`"),
            "Whether the events of a message are published before those of the next message.",
        ),
        PREFETCH.whole(1, MOST_PREFETCH, Value("100"), "Messages that a worker holds at most."),
        TIMEZONE.zone(Value("UTC"), "The zone of dates without an offset."),
        ID.pointer(
            Depends("the property `message_id`"),
            "Where a message has its id, as a JSON Pointer. A redelivered message makes the same event.",
        ),
        UNMATCHED.choice(Value("dead-letter"), "What becomes of a message that no rule matches."),
        EVENTS.rules(&RULE_LEVEL, Required, "The rules. Each that matches a message makes an event."),
    ],
};

pub(super) static RULE_LEVEL: Level = Level {
    name: "a rule of a source",
    keys: &[
        WHEN.conditions(
            Depends("every message"),
            "Places in the message (JSON Pointers) and the constants that must be there; of a list, one of them.",
        ),
        RULE_TYPE.word(Required, "The type of the event."),
        REFERENCE.reference(
            Depends("none"),
            "Where the message has the reference, as a JSON Pointer; or `{ const: TEXT }`.",
        ),
        NBF.pointer(Depends("now"), "Where the message has the date of the event, as a JSON Pointer."),
        PAYLOAD.pointer(Value("/"), "The part of the message that becomes the payload; `/` is the whole message."),
    ],
};

/// Every level, for a search over all keys.
pub(super) static LEVELS: [&Level; 10] = [
    &TOP,
    &LADDER_LEVEL,
    &REDIS_LEVEL,
    &TYPE,
    &COALESCE_LEVEL,
    &RETRY_LEVEL,
    &IN_PLACE_LEVEL,
    &SCHEDULE_LEVEL,
    &SOURCE_LEVEL,
    &RULE_LEVEL,
];

/// The words of `on-failure`. Unlike the domain's type, they do not hold the keys of `in-place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureWord {
    Retry,
    InPlace,
    Block,
    Drop,
}

/// The words of `register`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterWord {
    On,
    Off,
}

macro_rules! words {
    ($($type:ident: $($word:literal $value:ident),+;)+) => {$(
        impl Words for $type {
            const WORDS: &'static [&'static str] = &[$($word),+];
            const VALUES: &'static [Self] = &[$(Self::$value),+];
        }
    )+};
}

words! {
    QueueType: "quorum" Quorum, "classic" Classic;
    FailureWord: "retry" Retry, "in-place" InPlace, "block" Block, "drop" Drop;
    RegisterWord: "on" On, "off" Off;
    Immediate: "off" Off, "latest" Latest, "first" First;
    Delayed: "off" Off, "latest" Latest, "each-time" EachTime;
    Mode: "fixed" Fixed, "sequential" Sequential;
    Overlap: "queue" Queue, "skip" Skip;
    CatchUp: "none" None, "last" Last, "all" All;
    OnScheduleFailure: "continue" Continue, "pause" Pause;
    Unmatched: "dead-letter" DeadLetter, "drop" Drop;
}

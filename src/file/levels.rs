//! Every key of the file, one table for each level. The reader, the schema and the reference in `docs/` are made from the tables.

mod breaker;
mod life_cycle;
mod schedules;
mod sources;
mod types;

pub(super) use self::{
    breaker::{BREAKER_LEVEL, NOTIFY_LEVEL},
    life_cycle::LIFE_CYCLE_LEVEL,
    schedules::SCHEDULE_LEVEL,
    sources::{RULE_LEVEL, SOURCE_LEVEL},
    types::{COALESCE_LEVEL, IN_PLACE_LEVEL, RETRY_LEVEL, TYPE},
};
use super::{
    keys::{
        ACK_TIMEOUT, ADOPT, BACKLOG_RETENTION, DEDUP_RETENTION, DEFAULTS, HATCHERIES, HORIZON, LADDER, LIFE_CYCLE,
        MAX_PAYLOAD, MILLI, NAME, NOTIFY, PAUSED, PREFIX, QUEUE_TYPE, REDIS, RENAMED_FROM, RESOLUTION, SCHEDULES,
        SHARDS, SOURCES, TYPES, VERSION,
    },
    table::{
        Absent::{Required, Value},
        Level,
    },
};
use crate::domain::ttl::LONGEST;

/// The number of slots of a Redis cluster.
const MOST_SHARDS: u64 = 16_384;
/// RabbitMQ's default `max_message_size` since 4.0.
const MOST_PAYLOAD: u64 = 16 << 20;

pub(super) static TOP: Level = Level {
    name: "the file",
    keys: &[
        VERSION.version(Required, "The version of this format. There is only one.", "version: 1\nname: billing\ntypes:\n  mail: {}"),
        NAME.word(
            Required,
            "The first word of every exchange and queue, such as `billing.scheduler`. It also marks who owns them, so that \
             topologies of different names share a broker.",
            "name: accounts",
        ),
        QUEUE_TYPE.choice(
            Value("quorum"),
            "The type of every queue. A `classic` queue may lose events when a node fails, or when a timer dead-letters \
             them.",
            "queue-type: classic",
        ),
        HATCHERIES.ttls(
            true,
            Value("[]"),
            "Named delays, one queue each. All types share them. The ladder makes every other delay.",
            "hatcheries: [5s, 1m, 1h]",
        ),
        LADDER.section(
            &LADDER_LEVEL,
            Value("{}"),
            "The timer for every delay that is not in `hatcheries`, and for dates.",
            "ladder:\n  resolution: 1s\n  horizon: 30d",
        ),
        REDIS.section(
            &REDIS_LEVEL,
            Value("{}"),
            "The keys of the register in Redis, and how long they live.",
            "redis:\n  prefix: payroll",
        ),
        ACK_TIMEOUT.duration(
            MILLI,
            LONGEST,
            Value("30m"),
            "How long the broker waits for an acknowledgement (its `consumer_timeout`). A file whose `prefetch`, \
             `concurrency` and `handler-timeout` could take longer is refused. Workers ask RabbitMQ \
             4.3 for this time and a minute; before, the key does not set the broker's timeout.",
            "ack-timeout: 1h",
        ),
        MAX_PAYLOAD.bytes(
            MOST_PAYLOAD,
            Value("16MiB"),
            "The largest payload that is published. A larger one is refused.",
            "max-payload: 256KiB",
        ),
        DEFAULTS.section(
            &TYPE,
            Value("{}"),
            "The settings of all types, unless a type has its own. It takes every key of a type but `renamed-from`.",
            "defaults:\n  concurrency: 4\n  retry:\n    max-attempts: 3",
        ),
        TYPES.types(
            &TYPE,
            Required,
            "The types of events by name, one word each. A type has its own queue, workers and dead letters. `{}` is a type \
             without settings of its own.",
            "types:\n  mail: {}\n  hr-import:\n    concurrency: 4",
        ),
        ADOPT.objects(
            Value("[]"),
            "Existing exchanges and queues, by name, that the topology takes over although they do not carry its label.",
            "adopt: [billing.processor.mail]",
        ),
        RENAMED_FROM.names(
            Value("[]"),
            "The name that this topology had before, or a list of names, the oldest first.",
            "name: accounts\nrenamed-from: billing",
        ),
        PAUSED.pause(
            Value("off"),
            "Whether workers start no event of any type or source, or the reason why. `apply` tells them; `topology pause` does it \
             without a file.",
            "paused: \"the new cluster is filled\"",
        ),
        SCHEDULES.schedules(
            &SCHEDULE_LEVEL,
            Value("{}"),
            "Periodic events, by the name of the schedule.",
            "schedules:\n  nightly-import:\n    type: mail\n    cron: \"0 3 * * 1-5\"",
        ),
        SOURCES.sources(
            &SOURCE_LEVEL,
            Value("{}"),
            "Queues of plain messages that become events by rules, by the name of the source: one word of up to 57 \
             characters.",
            "sources:\n  hr:\n    queue: hr-changes\n    events:\n      - type: mail",
        ),
        NOTIFY.section(
            &NOTIFY_LEVEL,
            Value("{}"),
            "Tells of a breaker that opens.",
            "notify:\n  type: mail",
        ),
        LIFE_CYCLE.short(
            &LIFE_CYCLE_LEVEL,
            life_cycle::LIFE_CYCLE_SHORT,
            Value("failures"),
            "A stream that is told what happens to events. A word is short for `events`.",
            "life-cycle: all",
        ),
    ],
};

pub(super) static LADDER_LEVEL: Level = Level {
    name: "`ladder`",
    keys: &[
        RESOLUTION.duration(
            MILLI,
            LONGEST,
            Value("250ms"),
            "The step of the ladder. No event comes early, and none more than a step late.",
            "ladder:\n  resolution: 1s",
        ),
        HORIZON.duration(
            MILLI,
            LONGEST,
            Value("365d"),
            "The ladder makes at least this delay in one round. An event with a longer delay goes through it again.",
            "ladder:\n  horizon: 30d",
        ),
    ],
};

pub(super) static REDIS_LEVEL: Level = Level {
    name: "`redis`",
    keys: &[
        PREFIX.prefix(
            Value("hatchery"),
            "The first part of every key in Redis: up to 64 characters without spaces and braces.",
            "redis:\n  prefix: payroll",
        ),
        SHARDS.whole(
            1,
            MOST_SHARDS,
            Value("1"),
            "The number of hash slots that the keys are spread over. More than 1 serves a Redis Cluster.",
            "redis:\n  shards: 16",
        ),
        DEDUP_RETENTION.duration(
            MILLI,
            LONGEST,
            Value("1h"),
            "How long a finished event is remembered. Until then a redelivery of it is dropped. It should exceed \
             `ack-timeout`.",
            "redis:\n  dedup-retention: 6h",
        ),
        BACKLOG_RETENTION.duration(
            MILLI,
            LONGEST,
            Value("7d"),
            "How long an event that has not run is remembered beyond its due time. An event that waits longer behind \
             others may run although a newer one replaced it.",
            "redis:\n  backlog-retention: 30d",
        ),
    ],
};

/// Every level, in the order of the reference.
pub static LEVELS: [&Level; 13] = [
    &TOP,
    &TYPE,
    &COALESCE_LEVEL,
    &RETRY_LEVEL,
    &IN_PLACE_LEVEL,
    &BREAKER_LEVEL,
    &LADDER_LEVEL,
    &REDIS_LEVEL,
    &NOTIFY_LEVEL,
    &LIFE_CYCLE_LEVEL,
    &SCHEDULE_LEVEL,
    &SOURCE_LEVEL,
    &RULE_LEVEL,
];

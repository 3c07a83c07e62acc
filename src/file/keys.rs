//! Every key of the file, one table a level: what the reader accepts, and what the schema is printed from.
//!
//! To add a key, add its row, and say in [`super::assemble`] what it means.

use std::time::Duration;

use super::table::{
    Absent::{Depends, Required, Value},
    Kind, Level, Short, key, not_built,
};
use crate::domain::ttl::LONGEST;

const INSTANT: Duration = Duration::ZERO;
const MILLI: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_hours(24);

/// RabbitMQ counts the deliveries that a consumer may hold in 16 bits.
const MOST_PREFETCH: u64 = 65_535;
/// A Redis cluster has no more slots.
const MOST_SHARDS: u64 = 16_384;
/// RabbitMQ takes no larger message since 4.0.
const MOST_PAYLOAD: u64 = 16 << 20;
/// Redis holds them in memory, beside the events that wait.
const MOST_KEPT: u64 = 64 << 10;
/// More tries than anybody waits for; what it guards is a slip of the hand.
const MOST_TRIES: u64 = 1_000_000;

pub(super) static TOP: Level = Level {
    name: "the file",
    keys: &[
        key("version", Kind::Version, Required, "The version of this format."),
        key("name", Kind::Word, Required, "The first word of every object's name on the broker."),
        key("queue-type", Kind::Choice(&["quorum", "classic"]), Value("quorum"), "The type of every queue."),
        key("hatcheries", Kind::Ttls { may_be_empty: true }, Value("[]"), "Named timers, one queue each."),
        key("ladder", Kind::Section(&LADDER), Value("{}"), "The timer for every other delay."),
        key("redis", Kind::Section(&REDIS), Value("{}"), "The register's keys, and how long they live."),
        key(
            "ack-timeout",
            Kind::Duration(MILLI, LONGEST),
            Value("30m"),
            "How long the broker waits for an acknowledgement (its consumer_timeout).",
        ),
        key("max-payload", Kind::Bytes(MOST_PAYLOAD), Value("16MiB"), "The largest payload that is published."),
        key("defaults", Kind::Section(&TYPE), Value("{}"), "What every type says unless it says otherwise."),
        key("types", Kind::Types(&TYPE), Required, "The event types by name."),
        key("adopt", Kind::Objects, Value("[]"), "Existing exchanges and queues to take over, by name."),
        key(
            "renamed-from",
            Kind::Names,
            Value("[]"),
            "The name that this topology had before, or a list, oldest first.",
        ),
        not_built("schedules", "Periodic events."),
        not_built("sources", "Queues of others to take events from."),
    ],
};

pub(super) static LADDER: Level = Level {
    name: "`ladder`",
    keys: &[
        key(
            "resolution",
            Kind::Duration(MILLI, LONGEST),
            Value("250ms"),
            "One step: no event is further behind its time.",
        ),
        key("horizon", Kind::Duration(MILLI, LONGEST), Value("365d"), "The longest delay in one round."),
    ],
};

pub(super) static REDIS: Level = Level {
    name: "`redis`",
    keys: &[
        key("prefix", Kind::Prefix, Value("hatchery"), "The first part of every key."),
        key("shards", Kind::Whole(1, MOST_SHARDS), Value("1"), "Hash slots that the keys are spread over."),
        key(
            "dedup-retention",
            Kind::Duration(MILLI, LONGEST),
            Value("1h"),
            "How long a finished event is remembered, so that its redelivery is dropped.",
        ),
        key(
            "backlog-retention",
            Kind::Duration(MILLI, LONGEST),
            Value("7d"),
            "How long an open event is remembered beyond its due time.",
        ),
    ],
};

pub(super) static TYPE: Level = Level {
    name: "a type",
    keys: &[
        key(
            "prefetch",
            Kind::Whole(1, MOST_PREFETCH),
            Value("100"),
            "Deliveries that a worker holds at most (10 for `block`, a part for `in-place`).",
        ),
        key(
            "concurrency",
            Kind::Whole(1, MOST_PREFETCH),
            Value("10"),
            "Handlers that a worker runs at a time (1 for `block`).",
        ),
        key(
            "handler-timeout",
            Kind::Duration(MILLI, LONGEST),
            Value("1m"),
            "How long one run of the handler may take.",
        ),
        key(
            "drain-timeout",
            Kind::Duration(INSTANT, LONGEST),
            Value("25s"),
            "How long a stopping worker waits for what runs (Kubernetes kills at 30s).",
        ),
        key(
            "coalesce",
            Kind::Short(&COALESCE, COALESCE_SHORT),
            Value("off"),
            "Which events of one reference stand for each other.",
        ),
        key("retry", Kind::Section(&RETRY), Value("{}"), "When a failed event is tried again."),
        key(
            "on-failure",
            Kind::Choice(&["retry", "in-place", "block", "drop"]),
            Value("retry"),
            "What follows a failure.",
        ),
        key(
            "crash-limit",
            // The first two deaths blame all that ran in the process; the third is the first that it is alone in.
            Kind::Whole(3, MOST_TRIES),
            Value("5"),
            "Deaths of its worker before an event is put aside, alone.",
        ),
        key(
            "exclusive",
            Kind::Switch,
            Depends("on where anything coalesces"),
            "One event of a reference at a time, in all workers together.",
        ),
        key(
            "lease",
            Kind::Duration(Duration::from_millis(100), DAY),
            Value("15s"),
            "How long a claim lasts unless it is renewed (every third of it).",
        ),
        key(
            "register",
            Kind::Choice(&["on", "off"]),
            Value("on"),
            "Whether Redis says which events are stale; off: no Redis is needed, and every copy runs.",
        ),
        key(
            "keep-payload",
            Kind::Size(MOST_KEPT),
            Value("off"),
            "The largest payload that the register keeps, so that a waiting event can be run now or put off by hand.",
        ),
        key(
            "in-place",
            Kind::Section(&IN_PLACE),
            Value("{}"),
            "Quick tries inside the worker, for `on-failure: in-place`.",
        ),
        key("renamed-from", Kind::Names, Value("[]"), "The name that this type had before, or a list, oldest first."),
    ],
};

pub(super) static COALESCE: Level = Level {
    name: "`coalesce`",
    keys: &[
        key(
            "immediate",
            Kind::Choice(&["off", "latest", "first"]),
            Value("off"),
            "How events that are due at once stand for each other.",
        ),
        key(
            "delayed",
            Kind::Choice(&["off", "latest", "each-time"]),
            Value("off"),
            "How events with a date stand for each other.",
        ),
        key(
            "window",
            Kind::Duration(MILLI, LONGEST),
            Depends("none"),
            "How long an immediate event waits for company.",
        ),
        key(
            "max-wait",
            Kind::Duration(MILLI, LONGEST),
            Depends("10 windows, 30s without one"),
            "How long a stream of changes that never pauses may put its reference off.",
        ),
    ],
};

/// The short forms of `coalesce`.
static COALESCE_SHORT: &[Short] = &[
    Short { word: "off", means: &[("immediate", "off"), ("delayed", "off")] },
    Short { word: "latest", means: &[("immediate", "latest"), ("delayed", "each-time")] },
    Short { word: "first", means: &[("immediate", "first"), ("delayed", "each-time")] },
];

pub(super) static RETRY: Level = Level {
    name: "`retry`",
    keys: &[
        key(
            "delays",
            Kind::Ttls { may_be_empty: false },
            Value("[10s, 1m, 10m]"),
            "After the first failure, the second, …; the last one repeats.",
        ),
        key("max-attempts", Kind::Whole(1, MOST_TRIES), Value("6"), "Tries in all, the first run included."),
        key("jitter", Kind::Share, Value("0"), "How much longer a delay may be, by chance: a part of it, like 20%."),
    ],
};

pub(super) static IN_PLACE: Level = Level {
    name: "`in-place`",
    keys: &[
        key("tries", Kind::Whole(1, MOST_TRIES), Value("3"), "Tries in a row, the first one included."),
        key("delay", Kind::Duration(INSTANT, DAY), Value("200ms"), "The pause between two tries."),
    ],
};

/// Every level, for those who look a key up wherever it belongs.
pub(super) static LEVELS: [&Level; 7] = [&TOP, &LADDER, &REDIS, &TYPE, &COALESCE, &RETRY, &IN_PLACE];

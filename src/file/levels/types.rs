//! The keys of a type, and those of the maps in it.

use std::time::Duration;

use super::breaker::{BREAKER_LEVEL, BREAKER_SHORT};
use crate::{
    domain::ttl::LONGEST,
    file::{
        keys::{
            BREAKER, COALESCE, CONCURRENCY, CRASH_LIMIT, DELAY, DELAYED, DELAYS, DRAIN_TIMEOUT, EXCLUSIVE,
            HANDLER_TIMEOUT, IMMEDIATE, IN_PLACE, JITTER, KEEP_PAYLOAD, LEASE, MAX_ATTEMPTS, MAX_WAIT, MILLI,
            MOST_PREFETCH, ON_EXPIRY, ON_FAILURE, PAUSED, PREFETCH, REGISTER, RENAMED_FROM, RETRY, TRIES, WINDOW,
        },
        table::{
            Absent::{Depends, Value},
            Level, Short,
        },
    },
};

const INSTANT: Duration = Duration::ZERO;
const DAY: Duration = Duration::from_hours(24);

/// Redis holds kept payloads in memory.
const MOST_KEPT: u64 = 64 << 10;
/// Guards against typing errors. Nobody waits for more tries.
const MOST_TRIES: u64 = 1_000_000;

pub(in crate::file) static TYPE: Level = Level {
    name: "a type",
    keys: &[
        PREFETCH.whole(
            1,
            MOST_PREFETCH,
            Value("100"),
            "The deliveries that a worker holds at most, those that run included. Unless the key is set, `block` lowers it \
             to 10, `in-place` divides it by the tries, and it is lowered until all runs fit into `ack-timeout`.",
            "prefetch: 40",
        ),
        CONCURRENCY.whole(
            1,
            MOST_PREFETCH,
            Value("10"),
            "The handlers of the type that a worker runs at a time, at most `prefetch`, also the default. With `block` it is 1.",
            "concurrency: 4",
        ),
        HANDLER_TIMEOUT.duration(
            MILLI,
            LONGEST,
            Value("1m"),
            "How long one run of the handler may take. A run that takes longer is stopped, and is a failure.",
            "handler-timeout: 2m",
        ),
        DRAIN_TIMEOUT.duration(
            INSTANT,
            LONGEST,
            Value("25s"),
            "How long a stopping worker waits for the handlers that run. Kubernetes kills a pod 30s after it asked it to \
             stop. A worker of several types takes the longest.",
            "drain-timeout: 50s",
        ),
        COALESCE.short(
            &COALESCE_LEVEL,
            COALESCE_SHORT,
            Value("off"),
            "Which events of one reference stand for each other. `latest` is short for `{ immediate: latest, delayed: \
             each-time }`, `first` for `{ immediate: first, delayed: each-time }`.",
            "coalesce: latest",
        ),
        RETRY.section(
            &RETRY_LEVEL,
            Value("{}"),
            "When an event whose handler failed is tried again, and how often.",
            "retry:\n  delays: [1m, 1h]\n  max-attempts: 10",
        ),
        ON_FAILURE.choice(
            Value("retry"),
            "What follows a failure. `retry`: the event waits in a retry queue. `in-place`: the worker tries again at once, \
             then dead-letters the event, or retries it if `retry` is set. `block`: the event is tried until it succeeds, \
             and those behind it wait. `drop`: the event is gone.",
            "on-failure: block",
        ),
        ON_EXPIRY.choice(
            Value("dead-letter"),
            "The fate of an event that has not started when it expires (`topology publish --expires`). `dead-letter`: people \
             find it there. `discard`: the event is gone.",
            "on-expiry: discard",
        ),
        PAUSED.pause(
            Value("off"),
            "Whether workers start no event of the type, or the reason why. `apply` tells them; `topology pause` does it without a \
             file. Events wait meanwhile.",
            "paused: \"the provider migrates\"",
        ),
        // After two deaths every event that ran in the process is suspected. Only the third run is alone.
        CRASH_LIMIT.whole(
            3,
            MOST_TRIES,
            Value("5"),
            "The number of crashes of its worker after which an event goes to dead-letter.",
            "crash-limit: 3",
        ),
        EXCLUSIVE.switch(
            Depends("on where anything coalesces, else off"),
            "Whether only one event of a reference runs at a time, in all workers together.",
            "exclusive: on",
        ),
        LEASE.duration(
            Duration::from_millis(100),
            DAY,
            Value("15s"),
            "How long a claim on an event, or on its reference, lasts in Redis. The worker renews it every third of that \
             time. After a crash another worker waits for its end.",
            "lease: 30s",
        ),
        REGISTER.choice(
            Value("on"),
            "Whether Redis tells which events are stale. `off`: the type needs no Redis, and every copy of an event runs.",
            "register: off",
        ),
        KEEP_PAYLOAD.size(
            MOST_KEPT,
            Value("off"),
            "The largest payload that Redis keeps, so that a person can run a waiting event now, or move it to an earlier \
             date. A larger payload is not kept.",
            "keep-payload: 4KiB",
        ),
        IN_PLACE.section(
            &IN_PLACE_LEVEL,
            Value("{}"),
            "The tries inside the worker, for `on-failure: in-place`.",
            "on-failure: in-place\nin-place:\n  tries: 5",
        ),
        BREAKER.short(
            &BREAKER_LEVEL,
            BREAKER_SHORT,
            Value("off"),
            "A circuit breaker: after too many errors in all workers nothing of the type starts for a while. `{}` is one with the \
             defaults. The events wait, and no attempt is spent.",
            "breaker:\n  errors: 100\n  window: 30s",
        ),
        RENAMED_FROM.names(
            Value("[]"),
            "The name that this type had before, or a list of names, the oldest first. Not in `defaults`.",
            "renamed-from: letter",
        ),
    ],
};

pub(in crate::file) static COALESCE_LEVEL: Level = Level {
    name: "`coalesce`",
    keys: &[
        IMMEDIATE.choice(
            Value("off"),
            "How events of one reference that are due at once stand for each other. `latest`: the newest runs. `first`: one \
             run serves all that were published before it began. `off`: each runs.",
            "coalesce:\n  immediate: latest",
        ),
        DELAYED.choice(
            Value("off"),
            "How events of one reference with a date stand for each other. `latest`: the newest runs, whatever its date. \
             `each-time`: of each date the newest runs. `off`: each runs.",
            "coalesce:\n  delayed: each-time",
        ),
        WINDOW.duration(
            MILLI,
            LONGEST,
            Depends("none: an event does not wait"),
            "How long an immediate event waits for newer ones of its reference. Each newer one begins the wait anew.",
            "coalesce:\n  immediate: latest\n  window: 2s",
        ),
        MAX_WAIT.duration(
            MILLI,
            LONGEST,
            Depends("10 windows, 30s without a window"),
            "How long changes that never pause may put off the run of their reference.",
            "coalesce:\n  immediate: latest\n  window: 2s\n  max-wait: 1m",
        ),
    ],
};

/// The short forms of `coalesce`.
static COALESCE_SHORT: &[Short] = &[
    Short { word: "off", means: &[(IMMEDIATE.name, "off"), (DELAYED.name, "off")] },
    Short { word: "latest", means: &[(IMMEDIATE.name, "latest"), (DELAYED.name, "each-time")] },
    Short { word: "first", means: &[(IMMEDIATE.name, "first"), (DELAYED.name, "each-time")] },
];

pub(in crate::file) static RETRY_LEVEL: Level = Level {
    name: "`retry`",
    keys: &[
        DELAYS.ttls(
            false,
            Value("[10s, 1m, 10m]"),
            "The delay after the first failure, after the second, and so on. The last one repeats.",
            "retry:\n  delays: [30s, 5m, 1h]",
        ),
        MAX_ATTEMPTS.whole(
            1,
            MOST_TRIES,
            Value("6"),
            "The tries in all, the first run included. After the last failure the event goes to dead-letter.",
            "retry:\n  max-attempts: 10",
        ),
        JITTER.share(
            Value("0"),
            "How much longer each delay may be, by chance: a part of it, such as 20%. Retries then go through the ladder.",
            "retry:\n  jitter: 20%",
        ),
    ],
};

pub(in crate::file) static IN_PLACE_LEVEL: Level = Level {
    name: "`in-place`",
    keys: &[
        TRIES.whole(
            1,
            MOST_TRIES,
            Value("3"),
            "The tries in a row, the first one included. Together they are one attempt.",
            "on-failure: in-place\nin-place:\n  tries: 5",
        ),
        DELAY.duration(
            INSTANT,
            DAY,
            Value("200ms"),
            "The pause between two tries.",
            "on-failure: in-place\nin-place:\n  delay: 1s",
        ),
    ],
};

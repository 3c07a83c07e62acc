//! The keys of a circuit breaker, and of the event that tells of one.

use std::time::Duration;

use crate::{
    domain::ttl::LONGEST,
    file::{
        keys::{COOLDOWN, ERRORS, MINIMUM, PROBES, RULE_TYPE, WINDOW},
        table::{
            Absent::{Depends, Value},
            Level, Short,
        },
    },
};

/// A worker reports five times a second.
const SHORTEST: Duration = Duration::from_secs(1);
/// Redis holds the window in ten parts.
const DAY: Duration = Duration::from_hours(24);
/// Guards against typing errors.
const MOST: u64 = 1_000_000;
/// Each probe that runs is a text in Redis.
const MOST_PROBES: u64 = 1_000;

pub(in crate::file) static BREAKER_LEVEL: Level = Level {
    name: "`breaker`",
    keys: &[
        ERRORS.errors(
            MOST,
            Value("100"),
            "The errors within `window`, of all workers, at which nothing of the type starts any more: a number, or a part of the \
             runs such as 50%. A failure, a time-out and a panic are errors.",
            "breaker:\n  errors: 50%",
        ),
        WINDOW.duration(SHORTEST, DAY, Value("30s"), "The time in which the errors come.", "breaker:\n  window: 1m"),
        COOLDOWN.duration_or(
            "manual",
            SHORTEST,
            LONGEST,
            Value("1m"),
            "How long nothing starts before a few events are tried. After a failure of one it is twice as long, up to ten times. \
             `manual` waits for `topology breaker close`.",
            "breaker:\n  cooldown: manual",
        ),
        PROBES.whole(
            1,
            MOST_PROBES,
            Value("5"),
            "How many events are tried after the cooldown, over all workers. If all go well, the type runs again.",
            "breaker:\n  probes: 1",
        ),
        MINIMUM.whole(
            1,
            MOST,
            Value("20"),
            "The least number of runs within `window` by which a part of them is judged.",
            "breaker:\n  errors: 50%\n  minimum: 100",
        ),
    ],
};

/// The short form of `breaker`.
pub(super) static BREAKER_SHORT: &[Short] = &[Short { word: "off", means: &[] }];

pub(in crate::file) static NOTIFY_LEVEL: Level = Level {
    name: "`notify`",
    keys: &[RULE_TYPE.word(
        Depends("none: the log tells it alone"),
        "A type of this file without a breaker. An event of it is published when a breaker opens.",
        "notify:\n  type: mail",
    )],
};

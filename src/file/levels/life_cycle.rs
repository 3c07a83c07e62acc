//! The keys of the stream that is told what happens to events.

use std::time::Duration;

use crate::{
    domain::ttl::LONGEST,
    file::{
        keys::{KEEP, MAX_SIZE, TOLD},
        table::{Absent::Value, Level, Short},
    },
};

/// RabbitMQ's `max-age` knows no shorter unit.
const SECOND: Duration = Duration::from_secs(1);
/// Ten segments of 1 MiB. RabbitMQ opens and deletes a file for each; with segments of some hundred bytes a node of 3.10 shut down
/// (measured).
const LEAST_SIZE: u64 = 10 << 20;
/// Guards against typing errors.
const MOST_SIZE: u64 = 1 << 40;

pub(in crate::file) static LIFE_CYCLE_LEVEL: Level = Level {
    name: "`life-cycle`",
    keys: &[
        TOLD.choice(
            Value("failures"),
            "Which transitions the stream is told. `all`: each, which is at least two for an event. `failures`: what went wrong, and \
             what people have done. `off`: there is no stream.",
            "life-cycle:\n  events: all",
        ),
        KEEP.duration(
            SECOND,
            LONGEST,
            Value("7d"),
            "How long a transition is kept at least, unless `max-size` removes it before.",
            "life-cycle:\n  keep: 30d",
        ),
        MAX_SIZE.disk(
            LEAST_SIZE,
            MOST_SIZE,
            Value("1GiB"),
            "How many bytes the stream keeps on each of its nodes. The disk needs a tenth more, at most 100MiB.",
            "life-cycle:\n  max-size: 10GiB",
        ),
    ],
};

/// The short forms of `life-cycle`.
pub(super) static LIFE_CYCLE_SHORT: &[Short] = &[
    Short { word: "off", means: &[(TOLD.name, "off")] },
    Short { word: "failures", means: &[(TOLD.name, "failures")] },
    Short { word: "all", means: &[(TOLD.name, "all")] },
];

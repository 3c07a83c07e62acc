//! The keys of a schedule.

use std::time::Duration;

use crate::{
    domain::ttl::LONGEST,
    file::{
        keys::{
            CATCH_UP, CRON, EVERY, MODE, ON_SCHEDULE_FAILURE, OVERLAP, PAUSED, REFERENCE_TEXT, RULE_TYPE, SPREAD,
            TEMPLATE, TIMEZONE,
        },
        table::{
            Absent::{Depends, Required, Value},
            Level,
        },
    },
};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_hours(24);

pub(in crate::file) static SCHEDULE_LEVEL: Level = Level {
    name: "a schedule",
    keys: &[
        RULE_TYPE.word(Required, "The type of the events. It needs the register.", "type: mail"),
        CRON.cron(
            Depends("none; without it `every` is required"),
            "When the events are due: a cron expression of five or six fields, or a word such as `@daily`.",
            "cron: \"0 3 * * 1-5\"",
        ),
        EVERY.duration(
            SECOND,
            LONGEST,
            Depends("none; without it `cron` is required"),
            "The interval of the events. The instants are its multiples since 1970.",
            "every: 5m",
        ),
        TIMEZONE.zone(
            Value("UTC"),
            "The time zone of `cron`, by its name in the time zone database.",
            "cron: \"0 3 * * *\"\ntimezone: Europe/Berlin",
        ),
        MODE.choice(
            Depends("`fixed` with `cron`, `sequential` with `every`"),
            "What the next instant is counted from. `fixed`: the definition alone. `sequential`: the end of the run before.",
            "every: 5m\nmode: fixed",
        ),
        SPREAD.duration(
            Duration::ZERO,
            DAY,
            Value("0s"),
            "How much later than its instant an event may be due, by chance.",
            "every: 5m\njitter: 10s",
        ),
        REFERENCE_TEXT.reference_text(
            Depends("none"),
            "The reference of the events: the object that they are about.",
            "reference: all",
        ),
        TEMPLATE.json(Value("{}"), "The payload of the events, any JSON.", "payload: { full: true }"),
        OVERLAP.choice(
            Value("queue"),
            "What happens at an instant at which the run before has not ended. `queue`: the event waits for the end. \
             `skip`: the instant is left out. Only with `mode: fixed`.",
            "cron: \"*/5 * * * *\"\noverlap: skip",
        ),
        CATCH_UP.choice(
            Value("last"),
            "Which instants still run that passed before their event could start, because no worker ran or the run before \
             took long: `none`, the `last` one, or `all`, one after the other. Only with `mode: \
             fixed`.",
            "cron: \"0 3 * * *\"\ncatch-up: all",
        ),
        PAUSED.pause(
            Value("off"),
            "Whether the events of the schedule do not run, or the reason why. `apply` tells the workers; `topology pause` does it \
             without a file.",
            "every: 5m\npaused: \"the bank is closed\"",
        ),
        ON_SCHEDULE_FAILURE.choice(
            Value("continue"),
            "What follows when an event goes to dead-letter. `pause`: the schedule stops until a person resumes it.",
            "on-failure: pause",
        ),
    ],
};

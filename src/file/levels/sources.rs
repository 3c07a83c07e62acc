//! The keys of a source, and those of its rules.

use crate::file::{
    keys::{
        DECLARE, EVENTS, ID, MOST_PREFETCH, NBF, ORDERED, PAUSED, PAYLOAD, PREFETCH, QUEUE, REFERENCE, RULE_TYPE,
        TIMEZONE, UNMATCHED, WHEN,
    },
    table::{
        Absent::{Depends, Required, Value},
        Level,
    },
};

pub(in crate::file) static SOURCE_LEVEL: Level = Level {
    name: "a source",
    keys: &[
        QUEUE.object(
            Depends("none; without it `declare: on` is required"),
            "The queue of somebody else that the messages come from. It is never changed.",
            "queue: hr-changes",
        ),
        DECLARE.switch(
            Value("off"),
            "Whether `apply` declares the queue, `<name>.source.<source>`. It keeps the order of arrival.",
            "declare: on",
        ),
        ORDERED.switch(
            Depends("off; on with `declare`"),
            "Whether the events of a message are published before those of the next message.",
            "queue: hr-changes\nordered: on",
        ),
        PAUSED.pause(
            Value("off"),
            "Whether workers take no message of the source, or the reason why. `apply` tells them; `topology pause` does it without a \
             file.",
            "queue: hr-changes\npaused: \"the payroll is closed\"",
        ),
        PREFETCH.whole(1, MOST_PREFETCH, Value("100"), "The messages that a worker holds at most.", "prefetch: 20"),
        TIMEZONE.zone(
            Value("UTC"),
            "The zone of dates without an offset, by its name in the time zone database.",
            "timezone: Europe/Berlin",
        ),
        ID.pointer(
            Depends("the property `message_id`"),
            "Where a message has its id. It makes the id of the event, so that a redelivered message makes the same event.",
            "id: /id",
        ),
        UNMATCHED.choice(
            Value("dead-letter"),
            "What becomes of a message that no rule matches. `drop`: it is acknowledged and gone.",
            "unmatched: drop",
        ),
        EVENTS.rules(
            &RULE_LEVEL,
            Required,
            "The rules. Each one that matches a message makes an event.",
            "events:\n  - type: mail\n    reference: /employee/number",
        ),
    ],
};

pub(in crate::file) static RULE_LEVEL: Level = Level {
    name: "a rule of a source",
    keys: &[
        WHEN.conditions(
            Depends("every message matches"),
            "Places in the message, and the constants that must be there. All must hold; of a list, one constant is enough.",
            "events:\n  - type: mail\n    when:\n      /kind: [hired, moved]",
        ),
        RULE_TYPE.word(Required, "The type of the event.", "events:\n  - type: mail"),
        REFERENCE.reference(
            Depends("none"),
            "Where the message has the reference of the event. `{ const: TEXT }` is the same reference for all.",
            "events:\n  - type: mail\n    reference: /employee/number",
        ),
        NBF.pointer(
            Depends("now"),
            "Where the message has the date of the event.",
            "events:\n  - type: mail\n    nbf: /employee/end_date",
        ),
        PAYLOAD.pointer(
            Value("/"),
            "The part of the message that becomes the payload; `/` is the whole message.",
            "events:\n  - type: mail\n    payload: /employee",
        ),
    ],
};

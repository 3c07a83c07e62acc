//! Every property and header of an event's message, with what the reference says of it: `docs/reference/headers.md` is made from
//! [`FIELDS`].

use super::header::{
    ATTEMPTS, BUSY, CRASHES, CREATED_AT, EXPIRES, FIRST_FAILURE, GENERATION, LAST_FAILURE, NBF, REASON, REFERENCE,
    SLOT, TRACEPARENT, VERSION,
};
use crate::domain::{message::REPLAYS, schedule::link};

/// A property or a header of an event's message.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Where it is in the message.
    pub place: Place,
    /// Its format.
    pub format: &'static str,
    /// The meaning of the field.
    pub about: &'static str,
    /// The meaning of its absence.
    pub absent: &'static str,
    /// The programs that write it.
    pub writers: &'static str,
    /// The programs that act on it.
    pub readers: &'static str,
    /// A value.
    pub example: &'static str,
}

/// The place of a field in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A property of AMQP.
    Property,
    /// A header.
    Header,
}

const TIME: &str = "a time";
const NUMBER: &str = "whole number";
const FAILURE: &str = "a time, a space, and the error in one line, cut at 1,000 bytes";

/// Every property and header of an event, the properties first.
pub static FIELDS: [Field; 22] = [
    Field {
        name: "message_id",
        place: Place::Property,
        format: "text, 1 to 255 bytes",
        about: "The id of the event. All copies of an event have the same one.",
        absent: "made for the first copy, or at the second delivery; until then a redelivery is not recognised",
        writers: "the publisher, or the worker that makes the first copy",
        readers: "the worker; the register knows the event by it",
        example: "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11",
    },
    Field {
        name: "type",
        place: Place::Property,
        format: "one word, or what another program has set",
        about: "The type of the event, for people. The queue decides the type of a delivery, and the first word of the routing \
                key decides the queue. Copies keep what another program has set.",
        absent: "nothing is missing",
        writers: "the publisher",
        readers: "the worker, if the routing key names another type of the file than the queue",
        example: "hr-import",
    },
    Field {
        name: "timestamp",
        place: Place::Property,
        format: "whole seconds since 1970",
        about: "When the event was accepted. `created_at` has it in milliseconds.",
        absent: "the time of the first read",
        writers: "the publisher",
        readers: "the worker, if there is no `created_at`",
        example: "1780304280",
    },
    Field {
        name: "content_type",
        place: Place::Property,
        format: "text",
        about: "The media type of the payload.",
        absent: "the handler gets none",
        writers: "the publisher",
        readers: "the handler",
        example: "application/json",
    },
    Field {
        name: "correlation_id",
        place: Place::Property,
        format: "text",
        about: "An id of the application, which hatchery passes on.",
        absent: "the handler gets none",
        writers: "the publisher",
        readers: "the handler",
        example: "order-4711",
    },
    Field {
        name: "delivery_mode",
        place: Place::Property,
        format: "2, persistent",
        about: "Tells RabbitMQ to keep the message over a restart.",
        absent: "a classic queue loses the message when RabbitMQ restarts",
        writers: "the publisher, and each copy",
        readers: "RabbitMQ",
        example: "2",
    },
    Field {
        name: REFERENCE,
        place: Place::Header,
        format: "text, 1 to 255 bytes, no control characters",
        about: "The object that the event is about. Events of one reference coalesce, and with `exclusive` run one at a time.",
        absent: "the event has no reference, and coalesces with nothing",
        writers: "the publisher, or a source",
        readers: "the worker, the register, the handler",
        example: "1234",
    },
    Field {
        name: CREATED_AT,
        place: Place::Header,
        format: TIME,
        about: "When the event was accepted.",
        absent: "the property `timestamp`, else the time of the first read",
        writers: "the publisher",
        readers: "the worker and the handler",
        example: "2026-06-01T08:58:00.000Z",
    },
    Field {
        name: NBF,
        place: Place::Header,
        format: TIME,
        about: "*Not before*: the date of the event. The routing key decides how long the message waits in RabbitMQ; a worker \
                that gets it earlier sends it through the ladder for the rest.",
        absent: "the event may run as soon as it is delivered",
        writers: "the publisher, a requeue, a retry with a delay of the handler, a reschedule",
        readers: "the worker and the handler",
        example: "2026-06-01T09:00:00.000Z",
    },
    Field {
        name: EXPIRES,
        place: Place::Header,
        format: TIME,
        about: "When the event expires. If it has not started by then, it does not run, and `on-expiry` says what becomes of \
                it. Copies made after a start have none. An event that coalesces does not expire.",
        absent: "the event does not expire",
        writers: "the publisher",
        readers: "the worker",
        example: "2026-06-01T09:10:00.000Z",
    },
    Field {
        name: ATTEMPTS,
        place: Place::Header,
        format: NUMBER,
        about: "The number of failed attempts. A requeue and a replay set it to 0.",
        absent: "0",
        writers: "the worker, in each retry and dead letter",
        readers: "the worker, for the next delay and `max-attempts`; the handler",
        example: "2",
    },
    Field {
        name: REASON,
        place: Place::Header,
        format: "text, cut at 1,000 bytes",
        about: "Why the message is where it is, for people.",
        absent: "the message came from a publisher",
        writers: "the worker, in each copy; `topology dead-letter replay`",
        readers: "people, `topology dead-letter`, and the handler",
        example: "retry: attempt=2 failed_at=2026-06-01T08:58:12.230Z error=\"connection refused\"",
    },
    Field {
        name: FIRST_FAILURE,
        place: Place::Header,
        format: FAILURE,
        about: "The first failure of the event, for people.",
        absent: "the event has not failed",
        writers: "the worker, in a retry, a dead letter and poison",
        readers: "people and `topology dead-letter`",
        example: "2026-06-01T08:58:02.118Z connection refused",
    },
    Field {
        name: LAST_FAILURE,
        place: Place::Header,
        format: FAILURE,
        about: "The last failure of the event, for people. `topology dead-letter list` groups the letters by it.",
        absent: "the event has not failed",
        writers: "the worker, in a retry, a dead letter and poison",
        readers: "people and `topology dead-letter`",
        example: "2026-06-01T08:58:12.230Z connection refused",
    },
    Field {
        name: SLOT,
        place: Place::Header,
        format: "text: `i`, `f`, `d`, `d:<ms>`, `q:<ms>` or `e:<id>`",
        about: "The events of its reference that the event competes with.",
        absent: "the event competes with nothing",
        writers: "a publisher that asks the register",
        readers: "the worker and the register",
        example: "d:1780304400000",
    },
    Field {
        name: VERSION,
        place: Place::Header,
        format: "whole number from 1",
        about: "The order of publishing. The register gives it, and any other value counts as absent.",
        absent: "the event competes with nothing",
        writers: "a publisher that asks the register",
        readers: "the worker, the register, the handler",
        example: "1780304280104000",
    },
    Field {
        name: GENERATION,
        place: Place::Header,
        format: NUMBER,
        about: "The number of the copy: 0 when published, and 1 more in each later copy. An older copy is dropped.",
        absent: "0",
        writers: "the publisher, and the worker in each copy",
        readers: "the worker and the register",
        example: "2",
    },
    Field {
        name: BUSY,
        place: Place::Header,
        format: NUMBER,
        about: "How often the event had to wait because its reference was taken. It decides the next wait.",
        absent: "0",
        writers: "the worker",
        readers: "the worker",
        example: "3",
    },
    Field {
        name: CRASHES,
        place: Place::Header,
        format: NUMBER,
        about: "The deaths of workers while the event ran alone (`register: off`); 1 if a delivery came back before it had an \
                id. RabbitMQ's `x-delivery-count` and the register's count are added.",
        absent: "0",
        writers: "the worker",
        readers: "the worker, for `crash-limit`",
        example: "1",
    },
    Field {
        name: TRACEPARENT,
        place: Place::Header,
        format: "text: a trace context of W3C",
        about: "The trace that the event belongs to.",
        absent: "the run begins a trace of its own",
        writers: "the publisher, if it traces",
        readers: "the worker, if it traces; the handler",
        example: "00-389fe10d5b1f4c7ea9d9e4a1c2b3d4e5-e1ae7fc902b7d8f2-01",
    },
    Field {
        name: link::HEADER,
        place: Place::Header,
        format: "text: JSON with the name, the instant or number, the rule and the digest of the schedule",
        about: "The place of the event in its schedule. Copies keep it.",
        absent: "the event is not of a schedule",
        writers: "`topology apply`, and the worker that arms the next event",
        readers: "the worker and the handler",
        example: r#"{"name":"nightly-import","slot":"2026-06-01T01:00:00Z","cron":"0 3 * * 1-5","timezone":"Europe/Berlin","mode":"fixed","digest":"9b42aa46b2fdd3ca"}"#,
    },
    Field {
        name: REPLAYS,
        place: Place::Header,
        format: NUMBER,
        about: "How often a person has replayed the event out of dead-letter. Copies keep it.",
        absent: "0",
        writers: "`topology dead-letter replay`",
        readers: "people",
        example: "1",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::wire::header::ALL;

    #[test]
    fn every_header_has_a_row() {
        let rows = FIELDS.iter().filter(|field| field.place == Place::Header).map(|field| field.name);
        let mut rows: Vec<_> = rows.collect();
        let mut headers = [&ALL[..], &[link::HEADER, REPLAYS]].concat();
        rows.sort_unstable();
        headers.sort_unstable();
        assert_eq!(rows, headers);
    }
}

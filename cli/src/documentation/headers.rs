//! The page about the properties and headers of a message, and what a handler gets of them.

use std::fmt::Write as _;

use hatchery::{
    Run,
    internals::wire::{
        self, Headers, Incoming, Properties, Value,
        fields::{FIELDS, Field, Place},
    },
};

use super::markdown::{code, page, sentence, table, wrapped};
use crate::handler::fields::fields;

/// Returns a run of the event that has every example.
fn run() -> Run {
    let value = |field: &Field| match field.example.parse() {
        Ok(number) if field.format.starts_with("whole number") => Value::I64(number),
        _ => Value::text(field.example),
    };
    let headers: Headers = FIELDS
        .iter()
        .filter(|field| field.place == Place::Header)
        .map(|field| (field.name.to_owned(), value(field)))
        .collect();
    let example = |name: &str| FIELDS.iter().find(|field| field.name == name).map(|field| field.example.to_owned());
    let properties = Properties {
        headers,
        message_id: example("message_id"),
        content_type: example("content_type"),
        correlation_id: example("correlation_id"),
        ..Properties::default()
    };
    let incoming = Incoming { routing_key: "hr-import.now".to_owned(), properties, body: "{}".into() };
    let event_type = "hr-import".parse().expect("a type");
    Run::of(wire::decode(&event_type, incoming, jiff::Timestamp::UNIX_EPOCH, String::new).expect("an event"))
}

fn part(text: &mut String, title: &str, place: Place) {
    let _ = write!(text, "\n## {title}\n");
    for field in FIELDS.iter().filter(|field| field.place == place) {
        let _ = write!(text, "\n### `{}`\n\n{}\n\n", field.name, wrapped(&sentence(field.about)));
        for (name, value) in [
            ("Format", field.format),
            ("If absent", field.absent),
            ("Written by", field.writers),
            ("Read by", field.readers),
            ("Example", &code(field.example)),
        ] {
            let _ = writeln!(text, "{}", wrapped(&format!("- {name}: {value}")).replace('\n', "\n  "));
        }
    }
}

#[test]
fn the_page_of_the_headers_is_as_the_code_says() {
    let mut text = format!(
        "# Properties and headers\n\n{}\n\n{}\n",
        wrapped(
            "The properties and headers of an event's message in RabbitMQ, who writes and who reads each of them. [The wire \
             format](../wire-format.md) explains how a program publishes or consumes without hatchery; it needs none of them."
        ),
        wrapped(
            "A header of the wrong type makes a message *poison*: it goes to the dead-letter queue of its type, with a `reason` that names \
             the header. Whole numbers are written with 64 bits, and read in any width. A message keeps all other headers and \
             properties through retries and dead-lettering, except those [of RabbitMQ](#headers-of-rabbitmq)."
        )
    );
    part(&mut text, "Properties", Place::Property);
    part(&mut text, "Headers", Place::Header);
    text += "\n## Headers of RabbitMQ\n\n";
    let rabbit = [
        (
            "x-delivery-count",
            "How often a quorum queue has delivered the message again. A worker counts it as starts of a suspect.",
        ),
        (
            "x-death",
            "The queues that dead-lettered the message. A dead letter that RabbitMQ itself wrote has only this one.",
        ),
        ("x-first-death-", "The first of those queues, and why (`x-first-death-queue`, `-reason`, `-exchange`)."),
        ("x-last-death-", "The last of them."),
        ("x-acquired-count", "RabbitMQ 4.3 counts deliveries in it."),
        ("CC", "Further routing keys."),
        ("BCC", "Further routing keys, which RabbitMQ removes."),
    ];
    let code_of_the_wire = include_str!("../../../src/domain/wire.rs");
    let rows = rabbit.map(|(name, about)| {
        assert!(code_of_the_wire.contains(&format!("\"{name}\"")), "{name}");
        let shown = if name.ends_with('-') { format!("{name}*") } else { name.to_owned() };
        [code(&shown), about.to_owned()]
    });
    table(&mut text, ["header", "meaning"], rows);
    text += "\nA copy by hatchery carries none of these: RabbitMQ would act on them again. Of the properties it leaves out `user_id`,\n`expiration` and `priority`.\n";
    text += "\n## What a handler gets\n\n";
    text += &wrapped(
        "A program (`topology work --exec`) gets the fields as environment variables, a service (`--http`) as headers of the request. \
         The payload is the standard input, or the body. An absent field is not set. Headers that begin with `Event-` are \
         percent-encoded. The examples are those of the event above.",
    );
    text += "\n\n";
    let run = run();
    let rows = fields(&run.event, Some(42)).map(|field| {
        let header = field.header.split('-').map(capitalised).collect::<Vec<_>>().join("-");
        [code(field.variable), code(&header), code(&field.value.expect("the example has every field"))]
    });
    table(&mut text, ["variable", "header", "example"], rows);
    text += "\n";
    text += &wrapped(
        "`EVENT_FENCE` [rises with each run](../guarantees.md#a-second-run) of the reference. `EVENT_SCHEDULE` and `EVENT_SLOT` are \
         the name of the [schedule](../schedules.md) and the instant.",
    );
    text += "\n";
    page("headers", &text);
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().collect::<String>() + letters.as_str()).unwrap_or_default()
}

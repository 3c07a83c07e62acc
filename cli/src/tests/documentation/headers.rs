//! The page about the properties and headers of a message, and what a handler gets of them.

use std::fmt::Write as _;

use hatchery::{
    Run,
    internals::wire::{
        self, Headers, Incoming, Properties, Value,
        fields::{FIELDS, Field, Place},
    },
};

use super::markdown::{code, codes, page, sentence, table, wrapped};
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
        for (name, value) in
            [("Format", field.format), ("Absent", field.absent), ("Writers", field.writers), ("Readers", field.readers)]
        {
            let _ = writeln!(text, "{}", wrapped(&format!("- {name}: {value}")).replace('\n', "\n  "));
        }
        if !field.format.contains("whole") {
            let _ = writeln!(text, "{}", wrapped(&format!("- Example: {}", code(field.example))).replace('\n', "\n  "));
        }
    }
}

#[test]
fn the_page_of_the_headers_is_as_the_code_says() {
    let mut text = format!(
        "# Properties and headers\n\n{}\n\n{}\n",
        wrapped(
            "Who writes and who reads each property and header of an event's message. A program that publishes or consumes \
             [without hatchery](../wire-format.md) needs none of them."
        ),
        wrapped(
            "A header of the wrong type makes a message [poison](../wire-format.md#properties-and-headers). A *time* is a text of \
             RFC 3339 with milliseconds, in UTC. Whole numbers are written with 64 bits, and read in any width."
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
    let code_of_the_wire = include_str!("../../../../src/domain/wire.rs");
    let rows = rabbit.map(|(name, about)| {
        assert!(code_of_the_wire.contains(&format!("\"{name}\"")), "{name}");
        let shown = if name.ends_with('-') { format!("{name}*") } else { name.to_owned() };
        [code(&shown), about.to_owned()]
    });
    table(&mut text, ["header", "meaning"], rows);
    text += "\n[Copies](../wire-format.md#copies) carry none of these: RabbitMQ would act on them again.\n";
    text += "\n## What a handler gets\n\n";
    text += &wrapped(
        "A program (`topology work --exec`) gets the fields as environment variables, a service (`--http`) as headers of the request. \
                  The payload is the standard input, or the body. An absent field is not set. Headers that begin with `Event-` are \
         percent-encoded.",
    );
    text += "\n\n";
    let run = run();
    let variables = fields(&run.event, Some(42)).map(|field| {
        let is_its_own = ["content-type", "traceparent"].contains(&field.header);
        let same = field.variable.to_lowercase().replace('_', "-");
        assert!(is_its_own || field.header == same, "{} is {}", field.variable, field.header);
        assert!(field.value.is_some(), "the example has no {}", field.variable);
        field.variable
    });
    text += &wrapped(&format!(
        "The variables are {}. A header has the same words, such as `Event-Created-At`, but `Content-Type` and `Traceparent`. \
         `EVENT_FENCE` [rises with each run](../guarantees.md#a-second-run) of the reference. `EVENT_SCHEDULE` and `EVENT_SLOT` are \
         the name of the [schedule](../schedules.md) and the instant.",
        codes(variables)
    ));
    text += "\n";
    page("headers", &text);
}

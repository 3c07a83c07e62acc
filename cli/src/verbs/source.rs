//! `topology source`: shows the events that a message becomes.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Subcommand;
use hatchery::{
    Topology, Word, WorkError,
    bytes::Bytes,
    internals::{
        bounded_file,
        names::Names,
        source::{Mapped, SourceSpec, map},
        time::millis_text,
        wire::{Incoming, Properties},
        words::{nearest, plain},
    },
};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    args::Common,
    exit::Exit,
    load,
    output::{Format, Output},
    table::{GAP, table, widest},
    text::cut,
};

/// The largest message that is read, in MiB: the default limit of RabbitMQ 3. That of RabbitMQ 4 is 16.
const LARGEST: u32 = 128;
/// The heads of the columns.
const HEADS: [&str; 6] = ["RULE", "TYPE", "REFERENCE", "DUE", "ID", "PAYLOAD"];
/// The least columns of a payload.
const LEAST: usize = 12;

/// Show the events that a message of a source becomes
#[derive(Subcommand)]
#[command(after_long_help = "\
Examples:
  topology source test hr @message.json
  topology work --source hr                the worker that takes the messages

docs/sources.md has the rules of a source.")]
pub(crate) enum Verb {
    Test(TestArgs),
}

/// Print the events that a message would become; needs no broker
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology source test hr @message.json
  topology source test hr - --message-id 4711 < message.json
  topology source test hr '{\"kind\": \"hired\"}' -o json

Exit 1: the message becomes no event, for the reason that is printed. A worker
would put it into the dead-letter queue of the source with this reason.")]
pub(crate) struct TestArgs {
    /// The source
    #[arg(value_name = "NAME")]
    source: String,

    /// The body of the message: JSON, @FILE for the bytes of a file, - for standard input
    #[arg(value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    body: String,

    /// The property `message_id` of the message
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,

    /// The property `correlation_id` of the message
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,

    /// The property `content_type` of the message
    #[arg(long, value_name = "TYPE", default_value = "application/json")]
    content_type: String,
}

/// The answer of `topology source test`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Tested {
    /// The source.
    source: String,
    /// The queue of the source.
    queue: String,
    /// The events, in the order in which they are published.
    events: Vec<EventView>,
    /// Why the message becomes no event; `null` if it does, or if the file drops it.
    unmappable: Option<String>,
}

/// A line with `-o ndjson`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum TestedLine {
    Event(EventView),
    Unmappable(UnmappableView),
}

/// An event that a message becomes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EventView {
    /// The number of the rule, from 1.
    rule: usize,
    /// The id; `null` if each delivery of the message gets a new one.
    id: Option<String>,
    /// The type.
    #[serde(rename = "type")]
    event_type: String,
    /// The reference.
    reference: Option<String>,
    /// The date; `null` means now.
    nbf: Option<String>,
    /// The header `reason`.
    reason: String,
    /// The MIME type of the payload.
    content_type: String,
    /// The correlation id.
    correlation_id: Option<String>,
    /// The payload; `null` if it is no UTF-8.
    payload: Option<String>,
    /// The size of the payload in bytes.
    size: usize,
}

/// A message that becomes no event.
#[derive(Serialize, JsonSchema)]
pub(crate) struct UnmappableView {
    /// Why the message becomes no event.
    unmappable: String,
}

impl From<&Mapped> for EventView {
    fn from(event: &Mapped) -> Self {
        Self {
            rule: event.rule,
            id: event.id.clone(),
            event_type: event.event_type.to_string(),
            reference: event.reference.as_ref().map(ToString::to_string),
            nbf: event.nbf.map(millis_text),
            reason: event.reason.clone(),
            content_type: event.content_type.clone().unwrap_or_else(|| "application/json".to_owned()),
            correlation_id: event.correlation_id.clone(),
            payload: std::str::from_utf8(&event.payload).ok().map(str::to_owned),
            size: event.payload.len(),
        }
    }
}

pub(crate) fn run(common: &Common, verb: &Verb, output: Output) -> anyhow::Result<Exit> {
    let Verb::Test(args) = verb;
    let topology = load::topology(common, output)?;
    let (name, spec) = source(&args.source, &topology)?;
    let tested = test(&topology, (name, spec), &message(args)?);
    let exit = if tested.unmappable.is_some() { Exit::Error } else { Exit::Done };
    match output.format {
        Format::Text => {
            output.print(&text(&tested, Output::columns()))?;
            if let Some(why) = &tested.unmappable {
                let letters = Names::new(topology.name.clone()).source_dead_letters(name);
                output.note(&format!("unmappable: {}; it would go to {letters}", plain(why)));
            }
        }
        Format::Json => output.json(&tested)?,
        Format::Ndjson => {
            let Tested { events, unmappable, .. } = tested;
            for event in events {
                output.json(&TestedLine::Event(event))?;
            }
            if let Some(unmappable) = unmappable {
                output.json(&TestedLine::Unmappable(UnmappableView { unmappable }))?;
            }
        }
    }
    Ok(exit)
}

fn source<'t>(name: &str, topology: &'t Topology) -> Result<(&'t Word, &'t SourceSpec), WorkError> {
    topology.sources.get_key_value(name).ok_or_else(|| {
        let nearest = nearest(name, topology.sources.keys().map(Word::as_str)).map(str::to_owned);
        WorkError::UnknownSource { name: name.to_owned(), nearest }
    })
}

fn message(args: &TestArgs) -> anyhow::Result<Incoming> {
    let body = match args.body.strip_prefix('@') {
        Some(path) => {
            let path = PathBuf::from(path);
            bounded_file::read(&path, LARGEST).with_context(|| format!("cannot read {}", path.display()))?
        }
        None if args.body == "-" => {
            let too_large = || format!("it has more than {LARGEST} MiB");
            bounded_file::read_to_end(std::io::stdin().lock(), u64::from(LARGEST) << 20, too_large)
                .context("cannot read the message")?
        }
        None => args.body.clone().into_bytes(),
    };
    let properties = Properties {
        message_id: args.message_id.clone(),
        correlation_id: args.correlation_id.clone(),
        content_type: Some(args.content_type.clone()),
        ..Properties::default()
    };
    Ok(Incoming { routing_key: String::new(), properties, body: Bytes::from(body) })
}

fn test(topology: &Topology, (name, spec): (&Word, &SourceSpec), message: &Incoming) -> Tested {
    let names = Names::new(topology.name.clone());
    let mapped = map(&names, (name, spec), topology.max_payload, message);
    let (events, unmappable) = match mapped {
        Ok(events) => (events, None),
        Err(unmappable) => (Vec::new(), Some(unmappable.to_string())),
    };
    Tested {
        source: name.to_string(),
        queue: spec.queue(&names, name),
        events: events.iter().map(EventView::from).collect(),
        unmappable,
    }
}

/// Returns the screen.
fn text(tested: &Tested, columns: usize) -> String {
    if tested.events.is_empty() {
        let why = if tested.unmappable.is_some() { "" } else { ": no rule matches, and the file drops it" };
        return format!("the message becomes no event{why}\n");
    }
    let mut rows: Vec<[String; 6]> = tested.events.iter().map(cells).collect();
    let before: usize = (0..5).map(|place| widest(&HEADS, &rows, place) + usize::from(GAP)).sum();
    let room = columns.saturating_sub(before).max(LEAST);
    for row in &mut rows {
        row[5] = cut(&row[5], room);
    }
    table(&HEADS, rows, 0..0) + "\n"
}

fn cells(event: &EventView) -> [String; 6] {
    let payload = event.payload.clone().unwrap_or_else(|| format!("{} bytes", event.size));
    [
        event.rule.to_string(),
        event.event_type.clone(),
        plain(event.reference.as_deref().unwrap_or("-")).into_owned(),
        event.nbf.clone().unwrap_or_else(|| "now".to_owned()),
        plain(event.id.as_deref().unwrap_or("new at each delivery")).into_owned(),
        plain(&payload).into_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::part;

    const FILE: &str = "\
version: 1
name: billing
types: { hr-import: {}, mail: {} }
sources:
  hr:
    queue: hr-changes
    timezone: Europe/Berlin
    events:
      - { when: { /kind: terminated }, type: hr-import, reference: /employee/number, nbf: /employee/end_date }
      - { when: { /notify: true }, type: mail, payload: /employee }
";

    fn tested(id: Option<&str>, body: &'static str) -> Tested {
        let topology = hatchery::file::read(FILE, "topology.yaml").expect("a valid file");
        let properties = Properties { message_id: id.map(str::to_owned), ..Properties::default() };
        let message = Incoming { routing_key: String::new(), properties, body: Bytes::from_static(body.as_bytes()) };
        test(&topology, source("hr", &topology).expect("a source"), &message)
    }

    /// The golden screens are in `tests/screens/verbs.txt`. `UPDATE_GOLDEN=1` writes them anew.
    #[test]
    fn a_test_is_as_it_was_drawn() {
        let body = r#"{"kind":"terminated","notify":true,"employee":{"number":1234,"end_date":"20260601","name":"Ada Lovelace, Countess"}}"#;
        for (name, columns) in [("source-events-80", 80), ("source-events-pipe", usize::MAX)] {
            let plain = anstream::adapter::strip_str(&text(&tested(Some("m-1"), body), columns)).to_string();
            part(&format!("verbs/{name}"), &plain);
        }
        let anonymous = r#"{"kind":"terminated","employee":{"number":"1"}}"#;
        let plain = anstream::adapter::strip_str(&text(&tested(None, anonymous), 80)).to_string();
        part("verbs/source-new-id", &plain);
        part("verbs/source-none", &text(&tested(None, "{}"), 80));
    }

    #[test]
    fn a_message_that_becomes_no_event_has_a_reason() {
        assert_eq!(tested(None, "{}").unmappable.as_deref(), Some("no rule matches"));
        let error = source("hrr", &hatchery::file::read(FILE, "topology.yaml").expect("valid")).expect_err("unknown");
        assert_eq!(error.to_string(), "there is no source `hrr` in the file; is it `hr`?");
    }
}

//! `topology publish`: publishes one event, or a batch.

mod answer;
mod batch;
mod relay;
mod served;

use std::{
    fs::File,
    io::{IsTerminal, Read},
    path::PathBuf,
    time::Duration,
};

use anyhow::Context as _;
use hatchery::{
    NewEvent, Topology,
    internals::{
        bounded_file,
        spec::{Coalesce, Delayed, Immediate},
        time::millis_text,
    },
    parse_duration, parse_time,
};
use hatchery_admin::{Until, batch::Batch};
use jiff::Timestamp;
use serde::de::IgnoredAny;

pub(crate) use self::answer::{Answer, Line};
use self::{answer::Published, batch::Way, relay::Relay, served::Sent};
use crate::{
    args::{Common, UsageError},
    connect,
    exit::{Ended, Exit},
    load,
    output::{Format, Output},
    server::Server,
};

/// Publish an event, or a batch of them
#[derive(clap::Args)]
#[command(override_usage = "topology publish [OPTIONS] <TYPE>\n       topology publish [OPTIONS] --batch <FILE|->")]
#[command(after_long_help = "\
Examples:
  topology publish mail --payload '{\"to\": \"ada@example.org\"}'
  topology publish hr-import --reference 1234 --payload @change.json --delay 5m
  topology publish hr-import --reference 1234 --at 2026-06-01T09:00:00Z
  echo hello | topology publish mail --payload -
  topology publish --batch events.ndjson --rejects rejects.ndjson
  tail -f events.ndjson | topology publish --batch - -o ndjson
  topology publish mail --server http://localhost:8080

A batch has one event a line, as JSON: type, reference, payload (any JSON, sent
as exactly the text in the line) or payload_base64, nbf or delay, expires, id,
correlation_id. A line may also change events that wait:
  {\"cancel\": {\"type\": \"mail\", \"reference\": \"50\"}}
  {\"reschedule\": {\"type\": \"mail\", \"id\": \"ID\", \"delay\": \"2h\"}}
with reference or id, at or immediate, and to or delay, as the flags of
`topology events cancel` and `reschedule`. It waits for the lines before it, and
the lines after it wait for it.

A bad line is reported and refused, the others are carried out, and the exit
code is 5; so is a reschedule that moves nothing. Ctrl-C ends the reading: lines
that were read are answered, the first line that was not read is reported, and
the exit code is 5. A second Ctrl-C stops at once.")]
pub(crate) struct Args {
    /// The type of the event
    #[arg(value_name = "TYPE", required_unless_present = "batch", conflicts_with = "batch")]
    event_type: Option<String>,

    /// The object that the event is about, such as the number of an employee
    #[arg(long, conflicts_with = "batch")]
    reference: Option<String>,

    /// The payload: JSON, @FILE for the bytes of a file, - for standard input; empty if left out
    #[arg(long, value_name = "JSON|@FILE|-", conflicts_with = "batch", allow_hyphen_values = true)]
    payload: Option<String>,

    /// Run the event not before this time
    #[arg(long, value_name = "TIME", conflicts_with_all = ["batch", "delay"], value_parser = parse_time)]
    at: Option<Timestamp>,

    /// Run the event after this delay at the earliest
    #[arg(long, value_name = "DURATION", conflicts_with = "batch", value_parser = parse_duration, allow_hyphen_values = true)]
    delay: Option<Duration>,

    /// Do not run the event if it has not started after this time, or by this date; not for events that coalesce
    #[arg(long, value_name = "DURATION|TIME", conflicts_with = "batch", allow_hyphen_values = true)]
    expires: Option<Until>,

    /// The event's id [default: a new UUIDv7]; without coalescing, the same id for the same time has no effect when
    /// published again
    #[arg(long, conflicts_with = "batch")]
    id: Option<String>,

    /// An id that is passed on to the handler
    #[arg(long, value_name = "ID", conflicts_with = "batch")]
    correlation_id: Option<String>,

    /// Publish the events of a file, one a line; - reads standard input
    #[arg(long, value_name = "FILE|-")]
    batch: Option<PathBuf>,

    /// Write the lines that were not published to this file
    #[arg(long, value_name = "FILE", requires = "batch")]
    rejects: Option<PathBuf>,
}

pub(crate) async fn run(common: &Common, args: Args, output: Output) -> anyhow::Result<Exit> {
    if args.batch.is_none() && args.rejects.is_some() {
        return Err(UsageError("--rejects needs --batch".to_owned()).into());
    }
    if let Some(server) = Server::named(common)? {
        return by_server(&server, &args, output).await;
    }
    let topology = load::topology(common, output)?;
    if let Some(input) = &args.batch {
        let files = batch::Files::open(input, args.rejects.as_deref())?;
        let hatchery = connect::connect(common, topology, "topology publish").await?;
        let (publisher, events) = (hatchery.publisher(), hatchery.events());
        let exit = batch::run(files, Way::Broker(Batch::new(&publisher, &events)), output).await;
        hatchery.close().await;
        return exit;
    }
    if args.reference.is_none()
        && let Some(name) = &args.event_type
        && coalesces(&topology, name, args.at.is_some() || args.delay.is_some())
    {
        output.warn(&format!("`{name}` coalesces by reference: without --reference this event competes with no other"));
    }
    let event = event(args, topology.max_payload, output)?;
    let builder = connect::builder(common, topology, "topology publish")?;
    let hatchery = builder.connect().await.map_err(connect::usage)?;
    let published = hatchery.publisher().publish(event).await;
    hatchery.close().await;
    let published = published?;
    tell(published.id, published.unversioned, output)
}

/// Publishes an event or a batch by a server, which knows the file.
async fn by_server(server: &Server, args: &Args, output: Output) -> anyhow::Result<Exit> {
    if let Some(input) = &args.batch {
        let files = batch::Files::open(input, args.rejects.as_deref())?;
        // A server that is away, or refuses the token, is told before any line is read.
        let _: IgnoredAny = server.get("/v1/token").await?;
        return batch::run(files, Way::Server(Relay::new(server)), output).await;
    }
    let (payload, _) = payload(args.payload.as_deref(), served::LARGEST, output)?;
    let published = served::publish(server, &sent(args, payload)).await?;
    tell(published.id, published.unversioned, output)
}

/// Returns the event as a server takes it.
fn sent(args: &Args, payload: Vec<u8>) -> Sent<'_> {
    let sent = Sent {
        r#type: args.event_type.as_deref().unwrap_or_default(),
        reference: args.reference.as_deref(),
        nbf: args.at.map(millis_text),
        delay: args.delay.map(served::millis),
        expires: args.expires.map(served::expiry),
        id: args.id.as_deref(),
        correlation_id: args.correlation_id.as_deref(),
        ..Sent::default()
    };
    sent.with_payload(payload)
}

/// Tells the id of the event that was published.
fn tell(id: String, unversioned: bool, output: Output) -> anyhow::Result<Exit> {
    if unversioned {
        output.warn("Redis gave no version: the event is published, and competes with no other event");
    }
    let told = match output.format {
        Format::Text => output.print(&text(&id)),
        Format::Json => output.json(&Answer::Event(Published { id })),
        Format::Ndjson => output.json(&Line::Event(Published { id })),
    };
    told.map_err(Ended::untold)?;
    Ok(Exit::Done)
}

/// Returns whether an event of this type, with a date or without one, competes with others of its reference.
fn coalesces(topology: &Topology, event_type: &str, is_dated: bool) -> bool {
    topology.types.get(event_type).is_some_and(|spec| {
        let Coalesce { immediate, delayed, .. } = spec.coalesce;
        if is_dated { delayed != Delayed::Off } else { immediate != Immediate::Off }
    })
}

/// Returns the answer for an event: its id alone, for scripts.
fn text(id: &str) -> String {
    format!("{id}\n")
}

fn event(args: Args, max_payload: usize, output: Output) -> anyhow::Result<NewEvent> {
    let (payload, content_type) = payload(args.payload.as_deref(), max_payload, output)?;
    let mut event = NewEvent::new(args.event_type.unwrap_or_default(), payload).content_type(content_type);
    if let Some(at) = args.at {
        event = event.at(at);
    }
    if let Some(delay) = args.delay {
        event = event.delay(delay);
    }
    if let Some(expires) = args.expires {
        event = expires.of(event);
    }
    if let Some(reference) = args.reference {
        event = event.reference(reference);
    }
    if let Some(id) = args.id {
        event = event.id(id);
    }
    if let Some(id) = args.correlation_id {
        event = event.correlation_id(id);
    }
    Ok(event)
}

fn payload(text: Option<&str>, most: usize, output: Output) -> anyhow::Result<(Vec<u8>, &'static str)> {
    // A pipe or a device may have no end.
    let read = |input: &mut dyn Read| {
        bounded_file::read_to_end(input, most as u64, || format!("it has more than max-payload ({most} bytes)"))
    };
    let bytes = match text {
        None => Vec::new(),
        Some("-") => {
            if std::io::stdin().is_terminal() {
                output.note("reading the payload from standard input; end it with Ctrl-D");
            }
            read(&mut std::io::stdin().lock()).context("cannot read the payload from standard input")?
        }
        Some(text) if text.starts_with('@') => {
            let file = &text[1..];
            let opened = File::open(file).and_then(|mut opened| read(&mut opened));
            opened.with_context(|| format!("cannot read the payload from {file}"))?
        }
        Some(text) => {
            serde_json::from_str::<IgnoredAny>(text)
                .context("--payload is not JSON; for other bytes use `--payload @FILE` or `--payload -`")?;
            text.as_bytes().to_vec()
        }
    };
    let json = serde_json::from_slice::<IgnoredAny>(&bytes).is_ok();
    Ok((bytes, if json { "application/json" } else { "application/octet-stream" }))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use rstest::rstest;

    use super::*;
    use crate::golden::screens;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    /// The server reads what it is sent as a line of a batch.
    #[rstest]
    #[case("mail", b"{\"to\": 1.50}", r#"{"type":"mail","payload":{"to": 1.50}}"#)]
    #[case("mail --reference a --delay 1m30s", b"", r#"{"type":"mail","reference":"a","delay":"90000ms"}"#)]
    #[case(
        "mail --id x --expires 10m",
        b"\xff",
        r#"{"type":"mail","payload_base64":"/w==","expires":"600000ms","id":"x"}"#
    )]
    #[case(
        "mail --at 2026-06-01T09:00:00Z --expires 2026-06-02T09:00:00Z",
        b"null",
        r#"{"type":"mail","payload":null,"nbf":"2026-06-01T09:00:00.000Z","expires":"2026-06-02T09:00:00.000Z"}"#
    )]
    fn an_event_is_sent_as_the_arguments_say(#[case] line: &str, #[case] payload: &[u8], #[case] expected: &str) {
        let cli = Cli::parse_from(["publish"].into_iter().chain(line.split(' ')));
        let sent = serde_json::to_string(&sent(&cli.args, payload.to_vec())).expect("JSON");
        assert_eq!(sent, expected);
        hatchery_admin::batch::event(sent.as_bytes()).expect("an event");
    }

    /// The golden screens: `tests/screens/verbs.txt`. `UPDATE_GOLDEN=1` writes them anew.
    #[test]
    fn an_answer_is_as_it_was_drawn() {
        screens("verbs/publish-event", |_| text("0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11"));
        screens("verbs/publish-batch", |_| batch::counted(120_000, 0, 3));
        screens("verbs/publish-batch-with-changes", |_| batch::counted(120_000, 17, 3));
    }

    #[test]
    fn a_payload_without_an_end_is_refused_with_the_limit() {
        let output = Output::new(crate::output::Format::Text, true, false);
        let error = payload(Some("@/dev/zero"), 1_000, output).expect_err("it has no end");
        let said = format!("{error:#}");
        assert_eq!(said, "cannot read the payload from /dev/zero: it has more than max-payload (1000 bytes)");
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("payload");
        std::fs::write(&path, "12345").expect("written");
        let given = format!("@{}", path.display());
        assert_eq!(payload(Some(&given), 5, output).expect("it is as long as is allowed").0, b"12345");
        payload(Some(&given), 4, output).expect_err("it is longer");
    }
}

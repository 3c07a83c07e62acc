//! `topology trace`: tells the life of events from the stream that records it, and where they are now.

mod now;
mod screen;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeSet, pin::pin};

use futures_util::TryStreamExt as _;
use hatchery::{
    EventSelector, Events, Hatchery, LifeCycleReader, LifeCycleRecord, Topology,
    internals::{ttl::say, words::plain},
    jiff::Timestamp,
};
use hatchery_admin::{
    location::{KnownEvent, Placed, placed},
    notation::parse_since,
    trace::{History, Trace, recorded},
};
use schemars::JsonSchema;
use serde::Serialize;

use self::now::Now;
use super::events::{Filters, known};
use crate::{
    args::{Common, UsageError},
    connect,
    exit::{Ended, Exit},
    load,
    output::{Format, Output},
    server::Server,
    text::sentence,
};

/// Tell what has happened to an event, to a reference, or in a type
#[derive(clap::Args, Clone)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true).args(["event", "reference", "event_type"])))]
#[command(after_long_help = "\
Examples:
  topology trace 0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11
  topology trace --reference 1234
  topology trace --reference 1234 --follow
  topology trace --type mail --since 1h
  topology trace --type mail --since 1h -o ndjson | jq -r '.reason // empty'

Reads the stream <name>.life-cycle. The default, `events: failures`, has no
publishes, starts and successes; `life-cycle: all` has. Records that a killed
process had not sent, or that the broker did not take, are missing.

Times are UTC, of the machine that wrote the record. The second column is the
time since the line before. Redis and the broker tell where an event is now.

RabbitMQ 3.13 and later filters by the reference, or by the id of an event
without one. Otherwise every record is read, which may take minutes.

Exit 1: nothing is known, or the topology has no such stream.")]
pub(crate) struct Args {
    /// The event's id
    #[arg(value_name = "ID")]
    event: Option<String>,

    /// The object that the events are about
    #[arg(long)]
    reference: Option<String>,

    /// The type of the events
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,

    /// Only records since this time, or of the last so long
    #[arg(long, value_name = "TIME|DURATION", value_parser = parse_since, allow_hyphen_values = true)]
    since: Option<Timestamp>,

    /// Print new records too, until Ctrl-C, and not where the events are
    #[arg(long)]
    follow: bool,
}

/// The answer of `topology trace`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Answer {
    /// The records, in the order in which the broker learned of them.
    records: Vec<LifeCycleRecord>,
    /// Where the events are now, as far as Redis knows them. Empty if only a type was asked for.
    now: Vec<Now>,
    /// When the oldest record of the stream was told; `null` if the stream is empty.
    #[schemars(with = "Option<String>")]
    oldest: Option<Timestamp>,
    /// `all` or `failures`: what the stream is told.
    events: Cow<'static, str>,
}

pub(crate) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    if let Some(server) = Server::named(common)? {
        return by_server(&server, args, output).await;
    }
    let topology = load::topology(common, output)?;
    let told = recorded(&topology)?;
    if args.follow && output.format == Format::Json {
        return Err(UsageError("--follow has no end, so its JSON is a record a line: -o ndjson".to_owned()).into());
    }
    let hatchery = connect::connect(common, topology.clone(), "topology trace").await?;
    let traced = Box::pin(trace(common, &hatchery, args, &topology, told, output)).await;
    hatchery.close().await;
    traced
}

async fn trace(
    common: &Common,
    hatchery: &Hatchery,
    args: &Args,
    topology: &Topology,
    told: &'static str,
    output: Output,
) -> anyhow::Result<Exit> {
    let of = args.of();
    let asked = asked(&of, topology)?;
    let mut reader = question(&of, hatchery, &asked).await;
    if args.follow {
        reader = reader.follow();
    }
    let oldest = reader.oldest().await?.map(|record| record.at);
    let bar = output.steps(0);
    let shown = bar.clone();
    let reader = reader.on_progress(move |done, all| {
        shown.set_length(all);
        shown.set_position(done);
    });
    let of_type = |record: &LifeCycleRecord| std::future::ready(of.has_type(record));
    let mut reading = pin!(reader.read().try_filter(of_type));
    // There may be millions of records of a type, so they are not kept.
    let is_printed_at_once = args.follow || (of.is_of_type() && output.format != Format::Json);
    let (mut records, mut types, mut is_told) = (Vec::new(), BTreeSet::new(), false);
    while let Some(record) = reading.try_next().await? {
        is_told |= record.is_of_an_event() || of.is_of_type();
        if !is_printed_at_once {
            records.push(record);
            continue;
        }
        if record.is_of_an_event() {
            types.extend(record.event_type.clone());
        } else if !of.is_of_type() && !screen::concerns(&record, &types) {
            continue;
        }
        bar.suspend(|| match output.format {
            Format::Text => output.print(&screen::line(&record, Output::columns())),
            Format::Json | Format::Ndjson => output.json(&record),
        })?;
        if Output::is_closed() {
            return Ok(Exit::Done);
        }
    }
    bar.finish_and_clear();
    let now: Vec<Now> = match standing(common, &hatchery.events(), &asked, topology).await {
        Ok(placed) => placed.into_iter().map(Now::of).collect(),
        Err(error) => {
            output.warn(&format!("where the events are now is not known: {error:#}"));
            Vec::new()
        }
    };
    let kept = kept(oldest, &say(topology.life_cycle.keep), told);
    if !is_told && now.is_empty() {
        let unknown = args.event_type.as_ref().filter(|name| !topology.types.contains_key(name.as_str()));
        let why = match unknown {
            Some(name) => format!("the file has no type `{}`, and no record has it", plain(name)),
            None => NOTHING.to_owned(),
        };
        return Err(Ended::new(Exit::Error, format!("{why}. {kept}")).into());
    }
    let answer = Answer { records, now, oldest, events: told.into() };
    tell(answer, (&of, is_printed_at_once), &kept, output)
}

const UNREAD: &str = "there are more records than a server reads; --since TIME leaves out the older ones";
const NOTHING: &str = "there is no record, and Redis knows nothing of it";

/// Returns where the events are now.
async fn standing(
    common: &Common,
    events: &Events,
    asked: &[EventSelector],
    topology: &Topology,
) -> anyhow::Result<Vec<Placed>> {
    let admin = connect::admin(common, topology.clone(), "topology trace")?;
    let known = known(events, asked).await?;
    placed(events, &known, || async { anyhow::Ok(admin.queue_counts(&known).await) }).await
}

/// Asks a server, which reads up to 1,000 records.
async fn by_server(server: &Server, args: &Args, output: Output) -> anyhow::Result<Exit> {
    Server::refuse(&[("--follow", args.follow)])?;
    let of = args.of();
    let yes = || Some("true".to_owned());
    let query = [
        ("id", of.id.clone()),
        ("reference", of.reference.clone()),
        ("type", of.event_type.clone()),
        ("since", of.since.map(|since| since.to_string())),
        ("others", yes()),
        ("place", yes()),
    ];
    let History { records, more, now, oldest, events, keep } = server.find("/v1/trace", &query).await?;
    let kept = kept(oldest, &keep.unwrap_or_else(|| "?".to_owned()), &events);
    let placed = now.into_iter().filter_map(|known| match known {
        KnownEvent::Placed(placed) => Some(Now::of(*placed)),
        KnownEvent::Event(_) => None,
    });
    let answer = Answer { records, now: placed.collect(), oldest, events };
    let unread = || Ended::new(Exit::Partly, UNREAD);
    if answer.now.is_empty() && !answer.records.iter().any(|record| record.is_of_an_event() || of.is_of_type()) {
        if more {
            return Err(unread().into());
        }
        return Err(Ended::new(Exit::Error, format!("{NOTHING}. {kept}")).into());
    }
    let is_printed_at_once = of.is_of_type() && output.format == Format::Text;
    if is_printed_at_once {
        for record in &answer.records {
            output.print(&screen::line(record, Output::columns()))?;
        }
    }
    let exit = tell(answer, (&of, is_printed_at_once), &kept, output)?;
    if more {
        return Err(unread().into());
    }
    Ok(exit)
}

/// Shows the records, unless they were printed before.
fn tell(
    Answer { records, now, oldest, events }: Answer,
    (of, is_printed): (&Trace, bool),
    kept: &str,
    output: Output,
) -> anyhow::Result<Exit> {
    let records = if of.is_of_type() { records } else { screen::without_others(records, &now) };
    match output.format {
        Format::Text if is_printed => {}
        Format::Text => output.print(&screen::screen(&records, &now, Output::columns()))?,
        Format::Json => output.json(&Answer { records, now, oldest, events })?,
        Format::Ndjson => records.iter().try_for_each(|record| output.json(record))?,
    }
    if output.is_text() {
        output.note(sentence(kept, Output::error_columns()).trim_end());
    }
    Ok(Exit::Done)
}

/// Returns the question to the stream. An event that Redis knows is found by its reference at once.
async fn question(of: &Trace, hatchery: &Hatchery, asked: &[EventSelector]) -> LifeCycleReader {
    if of.id.is_none() {
        return of.question(hatchery.life_cycle());
    }
    let known = known(&hatchery.events(), asked).await.unwrap_or_default();
    let references = known.into_iter().map(|event| event.reference.map(|reference| reference.to_string()));
    of.clone().with_known(references).question(hatchery.life_cycle())
}

/// Says how far back the stream reaches, and what it is not told.
fn kept(oldest: Option<Timestamp>, keep: &str, told: &str) -> String {
    let oldest = oldest.map_or_else(|| "none".to_owned(), |oldest| format!("{oldest:.0}"));
    let partly = match told {
        "all" => "",
        _ => " With `events: failures` there are no publishes, starts, successes, requeues, put-offs and replacements.",
    };
    format!("Oldest record: {oldest} (keep: {keep}).{partly}")
}

impl Args {
    fn of(&self) -> Trace {
        let Self { event, reference, event_type, since, .. } = self.clone();
        Trace { id: event, reference, event_type, since, others: true }
    }
}

/// Returns the questions to Redis.
fn asked(of: &Trace, topology: &Topology) -> Result<Vec<EventSelector>, UsageError> {
    let mut asked = Vec::new();
    for event_type in of.types(topology) {
        let filters = Filters::naming(Some(event_type.to_string()), of.reference.clone(), of.id.clone());
        asked.extend(filters.named(&[])?);
    }
    Ok(asked)
}
